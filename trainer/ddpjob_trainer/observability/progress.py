"""Progress of a training, in the form that people and the operator read."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ddpjob_trainer.observability.slowest import Slowest
from ddpjob_trainer.process.activity import Activity

LEAST_SECONDS_BETWEEN_FILES: Final = 1.0
_DECIMALS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Snapshot of a training; None means not known (yet)."""

    rank: int
    world_size: int
    attempt: int
    epoch: int | None = None
    """The current epoch, counted from 1; at the end the last one."""
    total_epochs: int | None = None
    step: int = 0
    """Completed optimizer steps, including those before a resume."""
    total_steps: int | None = None
    loss: float | None = None
    """Mean over all ranks on the last log step; may be NaN or infinite."""
    samples_per_second: float | None = None
    """Of all ranks together."""
    seconds_per_step: float | None = None
    learning_rate: float | None = None
    last_step_time: float | None = None
    """End of the last step, in seconds since the Unix epoch."""
    last_checkpoint_step: int | None = None
    accuracy: float | None = None
    """Of the last evaluation, from 0 to 1."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the last evaluation has found, by name."""
    finished: bool = False
    activity: Activity = Activity.STARTING
    activity_seconds: float = 0.0
    seconds_since_step: float | None = None
    """Since this process' last finished step, None before its first."""
    quiet_seconds: float = 0.0
    """Since its last sign of progress: a finished step, or a checkpoint or evaluation that began or ended."""
    stack: str | None = None
    """Where a rank hangs: the innermost calls of a traceback."""
    slowest: Slowest | None = None
    """The rank that slows down the others; known to rank 0 alone."""
    process_restarts: int = 0
    """How often torchrun has restarted the processes within the attempt."""
    rejoins: int | None = None
    """Generation of the nodes' membership whose steps the loss of a node does not end; None where it does."""

    @property
    def eta_seconds(self) -> float | None:
        """Seconds that the remaining steps will take at the current speed."""
        if self.finished:
            return 0.0
        if self.total_steps is None or self.seconds_per_step is None:
            return None
        return max(self.total_steps - self.step, 0) * self.seconds_per_step

    def as_json(self) -> str:
        """The response of /progress. JSON has neither NaN nor infinity: the loss is then null, with `lossText`."""
        fields: dict[str, Any] = {
            "epoch": self.epoch,
            "totalEpochs": self.total_epochs,
            "step": self.step,
            "totalSteps": self.total_steps,
            "loss": self.loss,
            "samplesPerSecond": self.samples_per_second,
            "etaSeconds": self.eta_seconds,
            "learningRate": self.learning_rate,
            "lastStepTime": None if self.last_step_time is None else _rfc3339(self.last_step_time),
            "lastCheckpointStep": self.last_checkpoint_step,
            "worldSize": self.world_size,
            "rank": self.rank,
            "attempt": self.attempt,
            "finished": self.finished,
            "activity": self.activity,
            "activitySeconds": round(self.activity_seconds, _DECIMALS),
            "secondsSinceStep": None if self.seconds_since_step is None else round(self.seconds_since_step, _DECIMALS),
            "quietSeconds": round(self.quiet_seconds, _DECIMALS),
            "processRestarts": self.process_restarts,
        }
        if self.rejoins is not None:
            fields["rejoins"] = self.rejoins
        if self.stack is not None:
            fields["stack"] = self.stack
        if self.slowest is not None:
            fields["slowest"] = asdict(self.slowest)
        if self.accuracy is not None:
            fields["accuracy"] = self.accuracy
        if self.metrics:
            fields["metrics"] = {name: each if math.isfinite(each) else None for name, each in self.metrics.items()}
        if self.loss is not None and not math.isfinite(self.loss):
            fields["lossText"] = "nan" if math.isnan(self.loss) else "inf" if self.loss > 0 else "-inf"
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }
        return json.dumps(finite, allow_nan=False)


class ProgressFile:
    """Keeps the latest progress in a file that outlives the process."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Args:
        path: replaced as a whole, never seen half written.
        clock: seconds, to limit how often it is written.
        """
        self._path = path
        self._clock = clock
        self._written: float | None = None

    @property
    def due(self) -> bool:
        """Whether the next write would not be skipped: the last one was at least a second ago."""
        return self._written is None or self._clock() - self._written >= LEAST_SECONDS_BETWEEN_FILES

    def write(self, progress: Progress, *, last: bool = False) -> None:
        """Write the progress, at most once a second unless it is the last.

        Raises:
            OSError: the file cannot be written.
        """
        if not last and not self.due:
            return
        self._written = self._clock()
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_text(progress.as_json() + "\n", encoding="utf-8")
        temporary.replace(self._path)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
