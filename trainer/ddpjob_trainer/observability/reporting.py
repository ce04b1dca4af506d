"""Progress and metrics of a loop of one's own in two calls: one before it, one for each step."""

import math
import time
from collections.abc import Callable

import torch

from ddpjob_trainer.observability.listener import Listener, LogRecord, Plan
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.environment import current_environment
from ddpjob_trainer.process.group import Group, choose_backend, choose_device


class StepReports:
    """Told of every step by the loop, and tells who shows them."""

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
        listener: shows what it is told.
        epochs: that the training will have.
        steps_per_epoch: steps of the optimizer in each.
        done: steps before this process, of which a checkpoint tells.
        world_size: processes of the training.
        log_every: steps between two times that the loss is read back, which waits for the device.
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
        """A step of the optimizer is done; with the last planned one the training counts as finished.

        Args:
            loss: of this rank; shown by rank 0, read every `log_every` steps.
            samples: of this rank's step; shown as the speed of all ranks.
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
    """Serve /progress and /metrics for a loop of one's own; call `step` of the result after each of its steps.

    The launcher's variables say which rank this is; the process group may be there already, or be made later.

    Args:
        epochs: that the training will have.
        steps_per_epoch: steps of the optimizer in each, as `len(loader)`.
        done: steps before this process, where it has resumed.
        log_every: steps between two times that the loss is read back, which waits for the device.

    Raises:
        MisuseError: the process was started in a way that cannot work.
    """
    environment = current_environment()
    device = choose_device(environment)
    group = Group(environment.rank, environment.world_size, device, choose_backend(environment.job.backend, device))
    return StepReports(
        Telemetry(environment, group),
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        done=done,
        world_size=group.world_size,
        log_every=log_every,
    )
