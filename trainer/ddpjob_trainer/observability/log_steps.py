"""The log steps of a training: what is read back from the device and averaged over all ranks, waiting for nobody."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ddpjob_trainer.observability.listener import LogRecord
from ddpjob_trainer.process.exchange import Exchange, Mean


@dataclass(frozen=True, slots=True)
class _Pending:
    step: int
    loss: Mean
    learning_rate: float
    gradient_norm: torch.Tensor
    consumed: int

    def record(self) -> LogRecord:
        return LogRecord(self.step, self.loss.result(), self.learning_rate, float(self.gradient_norm), self.consumed)


class LogSteps:
    """Tells of one log step at a time; `begin` is a collective, on the same steps of all ranks.

    The ranks come to the end of a step at different times. They need each other again in the next backward pass: before
    that one, and not at the end of the step, a log step is told of.
    """

    def __init__(self, exchange: Exchange, tell: Callable[[LogRecord], None]) -> None:
        """Args:
        exchange: among the ranks.
        tell: takes what is known of a log step.
        """
        self._exchange = exchange
        self._tell = tell
        self._pending: _Pending | None = None

    def begin(self, loss: torch.Tensor, norm: torch.Tensor, *, step: int, learning_rate: float, consumed: int) -> None:
        """Take the mean of this rank's loss and the others' after a step.

        Args:
            loss: of this rank, a number on its device.
            norm: of the gradients, likewise.
            step: that is done.
            learning_rate: of it.
            consumed: samples of all ranks in this process' life.
        """
        self._pending = _Pending(step, self._exchange.begin_mean(loss), learning_rate, norm, consumed)

    def finish(self) -> None:
        """Tell of a log step that has begun, once all ranks have come to its end."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._tell(pending.record())

    def finish_if_soon(self, pause: Callable[[float], object] = time.sleep) -> None:
        """The same where some ranks may be gone: what is not there within a second is not waited for."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        try:
            record = pending.record() if pending.loss.done_soon(pause) else None
        except RuntimeError:
            # A rank has gone before it took part; what this one fails of is on its way already.
            return
        if record is not None:
            self._tell(record)
