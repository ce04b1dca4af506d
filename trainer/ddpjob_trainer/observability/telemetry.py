"""Metrics and progress of a training process, over HTTP and into a file."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from ddpjob_trainer.observability.listener import Evaluation, Listener, LogRecord, Plan
from ddpjob_trainer.observability.metrics import GpuMemory, ProcessInfo, TrainerMetrics
from ddpjob_trainer.observability.progress import Progress, ProgressFile
from ddpjob_trainer.observability.server import HttpServer
from ddpjob_trainer.observability.slowest import Slowest
from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.watchdog import Watchdog

_NEWEST_WEIGHT: Final = 0.3
"""Weight of the newest measurement in the displayed speed: smooth enough to read, quick enough to follow."""

_log = logging.getLogger(__name__)


class Telemetry(Listener):
    """Turns what a training reports into metrics and progress, and shows where it hangs.

    Its own failures never reach the training. A custom training loop calls the methods of Listener: `started`,
    `step_finished` and, now and then, `logged`; `activity_changed` before checkpoints and evaluations keeps them from
    being mistaken for a hang, and `finished` ends the detection of hangs.
    """

    def __init__(
        self,
        group: Group,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Bind the port of the environment and serve /metrics and /progress on it.

        Args:
            group: the processes of the training.
            clock: seconds, for speeds.
            wall_clock: seconds since the Unix epoch, for what people read.
        """
        environment = group.environment
        self._group = group
        self.metrics = TrainerMetrics(_info(group), _gpu_memory(group))
        self._clock = clock
        self._wall_clock = wall_clock
        self._pulse = Pulse(clock)
        self._progress = Progress(
            rank=group.rank,
            world_size=group.world_size,
            attempt=environment.job.attempt,
            process_restarts=group.process_restarts,
        )
        self._mark: tuple[float, int, int] | None = None
        self._stepped: float | None = None
        # What the group was able to when the last step ended.
        self._rejoins: int | None = None
        # Of the last log step: the record, samples per second, seconds per step. A step only stores them; a Progress is
        # made on request.
        self._logged: tuple[LogRecord | None, float | None, float | None] = (None, None, None)
        self._file: ProgressFile | None = None
        if group.first and environment.job.progress_file:
            self._file = ProgressFile(Path(environment.job.progress_file), clock)
        # A training that is over is still served, as finished, until the next one in this process begins.
        for before in _serving:
            before.close()
        _serving[:] = [self]
        self._server = self._serve(environment.http_port)
        self._watchdog: Watchdog | None = None
        if environment.job.progress_deadline_seconds > 0:
            self._watchdog = Watchdog(group.rank, self._pulse, environment.job.progress_deadline_seconds)
            self._watchdog.start()

    @property
    def port(self) -> int | None:
        """The port that is served, or None."""
        return None if self._server is None else self._server.port

    def progress(self) -> Progress:
        """The current progress of the training."""
        step, ended = self.metrics.steps.newest
        record, speed, per_step = self._logged
        moment = self._pulse.moment()
        return replace(
            self._progress,
            process_restarts=self._group.process_restarts,
            rejoins=self._rejoins if self._rejoins == self._group.rejoins else None,
            loss=None if record is None else record.loss,
            learning_rate=None if record is None else record.learning_rate,
            samples_per_second=speed,
            seconds_per_step=per_step,
            step=step,
            last_step_time=ended,
            activity=moment.activity,
            activity_seconds=moment.activity_seconds,
            seconds_since_step=moment.seconds_since_step,
            quiet_seconds=moment.quiet_seconds,
            stack=None if self._watchdog is None or moment.step is None else self._watchdog.stack(moment.step),
        )

    def close(self) -> None:
        """Stop serving and watching."""
        self._stop_watching()
        if self._server is not None:
            self._server.close()
            self._server = None

    def started(self, plan: Plan) -> None:
        """Show what the training has ahead."""
        self._progress = replace(
            self._progress,
            total_epochs=plan.total_epochs,
            total_steps=plan.total_steps,
            last_checkpoint_step=plan.step if plan.resumed else None,
        )
        self.metrics.planned_epochs.set(plan.total_epochs)
        self.metrics.planned_steps.set(plan.total_steps)
        self.metrics.steps.newest = (plan.step, None)
        if plan.resumed:
            self.metrics.checkpoint_step.set(plan.step)

    def epoch_started(self, epoch: int, steps: int) -> None:  # noqa: ARG002 the total number of steps is shown
        """An epoch begins."""
        self._progress = replace(self._progress, epoch=epoch)
        self.metrics.epoch.set(epoch)

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:
        """Count a step."""
        self._pulse.step_finished(step)
        self._stepped = self._clock()
        self._rejoins = self._group.rejoins
        self.metrics.steps.add(step, self._wall_clock(), samples=samples, data_seconds=data_seconds, seconds=seconds)

    def loss_computed(self, seconds: float) -> None:
        """Count the time in which this rank needed no other."""
        self.metrics.steps.add_local(seconds)

    def activity_changed(self, activity: Activity) -> None:
        """Show what this rank does."""
        self._pulse.change(activity)

    def logged(self, record: LogRecord) -> None:
        """Show what was read back from the device."""
        self._logged = (record, *self._measured_speed(record))
        self.metrics.loss.set(record.loss)
        self.metrics.learning_rate.set(record.learning_rate)
        self.metrics.gradient_norm.set(record.gradient_norm)
        self._write()

    def slowest_changed(self, slowest: Slowest | None) -> None:
        """Show which rank slows down the others."""
        before, self._progress = self._progress.slowest, replace(self._progress, slowest=slowest)
        if slowest is None:
            if before is not None:
                _log.info("no rank slows down the others any longer")
        elif before is None or (before.rank, before.what) != (slowest.rank, slowest.what):
            _log.warning(
                "rank %d slows down the others: it takes %.1f times as long as they do for its own part of a step (%s)",
                slowest.rank,
                slowest.factor,
                slowest.what,
            )

    def not_finite(self, step: int, what: str) -> None:  # noqa: ARG002 the log shows them
        """Count it."""
        self.metrics.not_finite.inc()

    def checkpoint_saved(self, step: int, pause_seconds: float) -> None:
        """A checkpoint is on disk."""
        self._progress = replace(self._progress, last_checkpoint_step=step)
        self.metrics.checkpoint_step.set(step)
        self.metrics.checkpoint_time.set(self._wall_clock())
        self.metrics.checkpoint_seconds.observe(pause_seconds)

    def measured(self, evaluation: Evaluation) -> None:
        """Show what an evaluation has found."""
        self._progress = replace(self._progress, metrics=dict(evaluation.metrics))
        self.metrics.show_evaluation(evaluation.metrics)

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:  # noqa: ARG002 the accuracy is shown
        """Show an accuracy."""
        self._progress = replace(self._progress, accuracy=value)
        self.metrics.accuracy.set(value)

    def shortened(self, total_epochs: int, total_steps: int) -> None:
        """Show how long the training has become."""
        self._progress = replace(self._progress, total_epochs=total_epochs, total_steps=total_steps)
        self.metrics.planned_epochs.set(total_epochs)
        self.metrics.planned_steps.set(total_steps)

    def finished(self) -> None:
        """Leave the final progress in the file."""
        self._pulse.change(Activity.FINISHED)
        # A training that is resumed after its end has no epoch at all.
        self._progress = replace(self._progress, epoch=self._progress.total_epochs, finished=True)
        self._write(last=True)
        self._stop_watching()

    def stopped(self, step: int) -> None:  # noqa: ARG002 known from step_finished
        """Leave the last progress in the file, and end the detection of hangs."""
        self._write(last=True)
        self._stop_watching()

    def failed(self) -> None:
        """Leave the last progress in the file, and end the detection of hangs."""
        self._write(last=True)
        self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None

    def _measured_speed(self, record: LogRecord) -> tuple[float | None, float | None]:
        """Samples per second and seconds per step."""
        # A step is logged some time after it has ended.
        now, (_, speed, per_step) = self._clock() if self._stepped is None else self._stepped, self._logged
        before, self._mark = self._mark, (now, record.step, record.consumed)
        if before is None or now <= before[0] or record.step <= before[1]:
            return speed, per_step
        seconds = now - before[0]
        speed = _smooth(speed, (record.consumed - before[2]) / seconds)
        self.metrics.samples_per_second.set(speed)
        return speed, _smooth(per_step, seconds / (record.step - before[1]))

    def _write(self, *, last: bool = False) -> None:
        if self._file is None or not (last or self._file.due):
            return
        try:
            # The stack is for a look at a process that hangs; the file is kept small for the report.
            self._file.write(replace(self.progress(), stack=None, slowest=None, metrics={}), last=last)
        except OSError as reason:
            self._file = None
            _log.warning("progress is no longer written to the file: %s", reason)

    def _serve(self, port: int | None) -> HttpServer | None:
        if port is None:
            return None
        routes = {
            "/metrics": self.metrics.render,
            "/progress": lambda: ("application/json", self.progress().as_json().encode()),
        }
        try:
            server = HttpServer(port, routes)
        except (OSError, OverflowError) as reason:
            _log.warning("cannot serve metrics and progress on port %d, continuing without them: %s", port, reason)
            return None
        server.start()
        return server


_serving: Final = list[Telemetry]()
"""What this process serves."""


def _smooth(before: float | None, newest: float) -> float:
    return newest if before is None else (1 - _NEWEST_WEIGHT) * before + _NEWEST_WEIGHT * newest


def _gpu_memory(group: Group) -> GpuMemory | None:
    device = group.device
    if device.type != "cuda":
        return None
    # The allocator's own counters: asking the driver would wait for the GPU.
    return GpuMemory(
        allocated=lambda: float(torch.cuda.memory_allocated(device)),
        reserved=lambda: float(torch.cuda.memory_reserved(device)),
        total=float(torch.cuda.get_device_properties(device).total_memory),
    )


def _info(group: Group) -> ProcessInfo:
    environment = group.environment
    device = group.device.type
    if device == "cuda":
        with suppress(RuntimeError):
            device = torch.cuda.get_device_name(group.device)
    return ProcessInfo(
        job=environment.job.name,
        rank=group.rank,
        local_rank=environment.local_rank,
        node_rank=environment.node_rank,
        world_size=group.world_size,
        attempt=environment.job.attempt,
        process_restarts=group.process_restarts,
        device=device,
        backend=group.backend.value,
        torch=str(torch.__version__),
    )
