"""The log steps of a training: what is read back from the device and averaged over all ranks, without waiting."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ddpjob_trainer.observability.listener import LogRecord
from ddpjob_trainer.process.exchange import Exchange, Mean


@dataclass(frozen=True, slots=True)
class _Pending:
    step: int
    means: Mean
    learning_rate: float
    gradient_norm: torch.Tensor
    consumed: int

    def result(self) -> tuple[LogRecord, bool]:
        loss, suspicious = self.means.result()
        record = LogRecord(self.step, loss, self.learning_rate, float(self.gradient_norm), self.consumed)
        return record, suspicious > 0


class LogSteps:
    """Reports one log step at a time; `begin` is a collective, on the same steps of all ranks.

    The ranks come to the end of a step at different times. They need each other again in the next backward pass: a log
    step is reported just before that, and not at the end of the step.
    """

    def __init__(
        self,
        exchange: Exchange,
        report: Callable[[LogRecord], None],
        check: Callable[[LogRecord, bool], None] = lambda _record, _suspicious: None,
    ) -> None:
        """Args:
        exchange: between the ranks.
        report: called with each log step.
        check: called afterwards with the log step and whether any rank has found something suspicious; on all ranks,
            and not if some may be gone.
        """
        self._exchange = exchange
        self._report = report
        self._check = check
        self._pending: _Pending | None = None

    def begin(
        self,
        loss: torch.Tensor,
        norm: torch.Tensor,
        suspicious: torch.Tensor,
        *,
        step: int,
        learning_rate: float,
        consumed: int,
    ) -> None:
        """Start to average the losses of all ranks after a step.

        Args:
            loss: of this rank, a number on its device.
            norm: of the gradients, on the device too.
            suspicious: above 0 if this rank has found something suspicious, on the device too.
            step: the number of the step.
            learning_rate: of that step.
            consumed: samples of all ranks since this process started.
        """
        self._pending = _Pending(step, self._exchange.begin_mean(loss, suspicious), learning_rate, norm, consumed)

    def finish(self) -> None:
        """Report a log step that has begun, once all ranks have come to its end."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            record, suspicious = pending.result()
            self._report(record)
            self._check(record, suspicious)

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
