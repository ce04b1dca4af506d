"""The log steps of a training: what is read back from the device and averaged over all ranks, without waiting."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ddpjob_trainer.observability.listener import LogRecord
from ddpjob_trainer.process.exchange import Exchange, Mean

_APART: Final = 1e-4
"""Of norms that differ by some thousandths."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks know of each other after a log step."""

    suspicious: bool
    """Whether any of them has found something suspicious."""
    apart: bool
    """Whether the norms of their gradients differ, which were the same if they had been averaged."""
    own: list[list[float]]
    """What each rank has given of its own, in the order of ranks."""


@dataclass(frozen=True, slots=True)
class _Pending:
    step: int
    means: Mean
    learning_rate: float
    gradient_norm: torch.Tensor
    consumed: int

    def result(self) -> tuple[LogRecord, Agreed]:
        loss, suspicious, *direction = self.means.result()
        record = LogRecord(self.step, loss, self.learning_rate, float(self.gradient_norm), self.consumed)
        # Unit vectors have a mean of length 1 if they are the same. Without a direction it is nan, and tells nothing.
        apart = 1 - sum(each * each for each in direction) > _APART
        return record, Agreed(suspicious > 0, apart, self.means.rows())


class LogSteps:
    """Reports one log step at a time; `begin` is a collective, on the same steps of all ranks.

    The ranks come to the end of a step at different times, and wait for each other in the next backward pass: a log
    step is reported after that, when its means are known on all of them.
    """

    def __init__(
        self,
        exchange: Exchange,
        report: Callable[[LogRecord], None],
        check: Callable[[LogRecord, Agreed], None] = lambda _record, _agreed: None,
    ) -> None:
        """Args:
        exchange: between the ranks.
        report: called with each log step.
        check: called afterwards with the log step and what the ranks know of each other; on all of them, and not if
            some may be gone.
        """
        self._exchange = exchange
        self._report = report
        self._check = check
        self._pending: _Pending | None = None

    @property
    def pending(self) -> bool:
        """Whether a log step has begun that has not been reported."""
        return self._pending is not None

    def begin(
        self,
        loss: torch.Tensor,
        norm: torch.Tensor,
        suspicious: torch.Tensor | float,
        *,
        step: int,
        learning_rate: float,
        consumed: int,
        own: Sequence[float] = (),
    ) -> None:
        """Start to average the losses of all ranks after a step.

        Args:
            loss: of this rank, a number on its device.
            norm: of the gradients, on the device too.
            suspicious: above 0 if this rank has found something suspicious, on the device too.
            step: the number of the step.
            learning_rate: of that step.
            consumed: samples of all ranks since this process started.
            own: numbers of this rank that all are to know, as many on each.
        """
        means = self._exchange.begin_mean(loss, suspicious, *_direction(norm), row=own)
        self._pending = _Pending(step, means, learning_rate, norm, consumed)

    def finish(self) -> None:
        """Report a log step that has begun, once all ranks have come to its end."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            record, agreed = pending.result()
            self._report(record)
            self._check(record, agreed)

    def finish_if_soon(self, pause: Callable[[float], object] = time.sleep) -> None:
        """The same if some ranks may be gone: waits for a second at most."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        try:
            record = pending.result()[0] if pending.means.done_soon(pause) else None
        except RuntimeError:
            # A rank has gone before it took part; the exception that ends this one is raised anyway.
            return
        if record is not None:
            self._report(record)


def _direction(norm: torch.Tensor) -> tuple[torch.Tensor | float, torch.Tensor | float]:
    """A unit vector that turns with the norm's logarithm: a mean shorter than 1 shows a relative difference."""
    least = torch.finfo(torch.float32).tiny
    if norm.device.type == "cpu":
        # It can be read at once, and small tensors cost more than all else here.
        number = float(norm)
        angle = math.log2(max(number, least)) * 2 * math.pi if math.isfinite(number) else math.nan
        return math.cos(angle), math.sin(angle)
    turned = norm.detach().float().clamp(min=least).log2() * (2 * math.pi)
    return turned.cos(), turned.sin()
