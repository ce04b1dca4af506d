"""Progress and metrics of a custom loop in two calls: one before the loop, one per step."""

import logging
import math
import time
from collections.abc import Callable

import torch

from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.environment import current_environment
from ddpjob_trainer.process.group import Group, choose_backend, choose_device

_log = logging.getLogger(__name__)


class StepReports:
    """Passes the steps of a custom loop on to a listener."""

    def __init__(
        self,
        listener: Listener,
        *,
        epochs: int,
        steps_per_epoch: int,
        done: int,
        world_size: int,
        log_every: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        listener: is notified of the steps.
        epochs: total number of epochs.
        steps_per_epoch: optimizer steps per epoch.
        done: steps done before this process started, known from a checkpoint.
        world_size: number of processes.
        log_every: steps between two readings of the loss, each of which waits for the device.
        clock: seconds.
        """
        for name, number in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch), ("log_every", log_every)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        self._listener = listener
        self._steps_per_epoch = steps_per_epoch
        self._total = epochs * steps_per_epoch
        self._step = done
        self._world_size = world_size
        self._log_every = log_every
        self._clock = clock
        self._warned = False
        self._consumed = 0
        self._before = clock()
        listener.started(Plan(epochs, self._total, done, resumed=done > 0))
        if done < self._total:
            listener.epoch_started(done // steps_per_epoch + 1, steps_per_epoch)
        else:
            listener.finished()

    def step(self, loss: torch.Tensor | float | None = None, samples: int = 0) -> None:
        """Report a finished optimizer step; after the last planned one the training counts as finished.

        Nothing that goes wrong in it ends the training: it is logged once.

        Args:
            loss: of this rank; read every `log_every` steps, and shown by rank 0.
            samples: of this rank in this step; used for the speed of all ranks.
        """
        try:
            self._report(loss, samples)
        except Exception as reason:  # noqa: BLE001 as above
            self._warn("a step could not be reported", reason)

    def _number(self, loss: torch.Tensor | float | None) -> float:
        if loss is None:
            return math.nan
        try:
            return float(loss)
        except Exception as reason:  # noqa: BLE001 a loss of any form may be given
            self._warn("the loss cannot be read", reason)
            return math.nan

    def _warn(self, what: str, reason: Exception) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("%s: %s: %s", what, type(reason).__name__, reason)

    def _report(self, loss: torch.Tensor | float | None, samples: int) -> None:
        now = self._clock()
        self._step += 1
        self._consumed += samples * self._world_size
        self._listener.step_finished(self._step, samples, now - self._before, 0.0)
        if self._step % self._log_every == 0 or self._step == self._total:
            self._listener.logged(LogRecord(self._step, self._number(loss), math.nan, math.nan, self._consumed))
        if self._step == self._total:
            self._listener.finished()
        elif self._step % self._steps_per_epoch == 0:
            self._listener.epoch_started(self._step // self._steps_per_epoch + 1, self._steps_per_epoch)
        self._before = self._clock()


class Unreported:
    """Stands for reports where none can be made."""

    def step(self, loss: torch.Tensor | float | None = None, samples: int = 0) -> None:
        """Do nothing."""


def report_progress(
    epochs: int, steps_per_epoch: int, *, done: int = 0, log_every: int = 10
) -> StepReports | Unreported:
    """Serve /progress and /metrics for a custom loop; call `step` of the result after each optimizer step.

    The rank comes from the launcher's variables; the process group may exist already, or be created later. It never
    ends the training: if nothing can be reported, that is logged, and the result does nothing.

    Args:
        epochs: total number of epochs.
        steps_per_epoch: optimizer steps per epoch, such as `len(loader)`.
        done: steps done before this process started, after a resume.
        log_every: steps between two readings of the loss, each of which waits for the device.
    """
    try:
        return _reports(epochs, steps_per_epoch, done, log_every)
    except Exception as reason:  # noqa: BLE001 as above
        _log.warning("no progress is reported: %s: %s", type(reason).__name__, reason)
        return Unreported()


def _reports(epochs: int, steps_per_epoch: int, done: int, log_every: int) -> StepReports:
    environment = current_environment()
    device = choose_device(environment)
    backend = choose_backend(environment.job.backend, device)
    group = Group(environment.rank, environment.world_size, device, backend, environment)
    return StepReports(
        Telemetry(group),
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        done=done,
        world_size=group.world_size,
        log_every=log_every,
    )
