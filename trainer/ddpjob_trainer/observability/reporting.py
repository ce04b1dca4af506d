"""Progress and metrics of a custom loop in two calls: one before the loop, one per step."""

import math
import time
from collections.abc import Callable

import torch

from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.environment import current_environment
from ddpjob_trainer.process.group import Group, choose_backend, choose_device


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
        self._consumed = 0
        self._before = clock()
        listener.started(Plan(epochs, self._total, done, resumed=done > 0))
        if done < self._total:
            listener.epoch_started(done // steps_per_epoch + 1, steps_per_epoch)
        else:
            listener.finished()

    def step(self, loss: torch.Tensor | float | None = None, samples: int = 0) -> None:
        """Report a finished optimizer step; after the last planned one the training counts as finished.

        Args:
            loss: of this rank; read every `log_every` steps, and shown by rank 0.
            samples: of this rank in this step; used for the speed of all ranks.
        """
        now = self._clock()
        self._step += 1
        self._consumed += samples * self._world_size
        self._listener.step_finished(self._step, samples, now - self._before, 0.0)
        if self._step % self._log_every == 0 or self._step == self._total:
            value = math.nan if loss is None else float(loss)
            self._listener.logged(LogRecord(self._step, value, math.nan, math.nan, self._consumed))
        if self._step == self._total:
            self._listener.finished()
        elif self._step % self._steps_per_epoch == 0:
            self._listener.epoch_started(self._step // self._steps_per_epoch + 1, self._steps_per_epoch)
        self._before = self._clock()


def report_progress(epochs: int, steps_per_epoch: int, *, done: int = 0, log_every: int = 10) -> StepReports:
    """Serve /progress and /metrics for a custom loop; call `step` of the result after each optimizer step.

    The rank comes from the launcher's variables; the process group may exist already, or be created later.

    Args:
        epochs: total number of epochs.
        steps_per_epoch: optimizer steps per epoch, such as `len(loader)`.
        done: steps done before this process started, after a resume.
        log_every: steps between two readings of the loss, each of which waits for the device.

    Raises:
        MisuseError: the process was started in a way that cannot work.
    """
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
