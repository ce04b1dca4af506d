"""How a training proceeds, as chosen by its user."""

import operator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ddpjob_trainer.loop.choice import one_of
from ddpjob_trainer.loop.early_stopping import EarlyStopping, Mode
from ddpjob_trainer.loop.finite import OnNan
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.observability.metric_names import check_name

_COUNTS: Final = (
    "total_epochs",
    "max_steps",
    "batch_size",
    "save_every",
    "save_every_steps",
    "evaluate_every_steps",
    "log_every",
)


class Interval(StrEnum):
    """How often a scheduler is advanced."""

    STEP = "step"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a training proceeds; `total_epochs` or `max_steps` says when it ends, or both: then what comes first."""

    total_epochs: int | None = None
    """Passes through the data."""
    max_steps: int | None = None
    """Steps of the optimizer, over the ends of epochs, including those before a resume."""
    batch_size: int
    """Samples per process and batch at most; a step is one batch, or several (see `Optimization.accumulate`). With
    another number of processes than the training began with, what `Optimization.batch_policy` says."""
    save_every: int = 1
    """Epochs between two checkpoints and evaluations; the last step has both in any case."""
    save_every_steps: int | None = None
    """Steps between two checkpoints within an epoch; None saves only at the end of epochs."""
    evaluate_every_steps: int | None = None
    """Steps between two evaluations, apart from checkpoints; None evaluates every `save_every` epochs. The last step
    has one in any case."""
    metric: str | None = None
    """Name of the number that early stopping, `keep_best` and ReduceLROnPlateau look at, if `evaluate` gives several;
    of the only one where it gives a plain number."""
    keep_best: Mode | None = None
    """Keep the checkpoint of the evaluation whose metric is the largest (`max`) or the smallest (`min`) in addition to
    the newest ones; it is saved even if no checkpoint is due. Early stopping keeps it in any case."""
    log_every: int = 10
    """Steps between two readings of the loss, each of which waits for the device."""
    seed: int = 0
    shuffle: bool = True
    """Read the samples in another order in each epoch; False: in the order of the data set."""
    drop_last: bool = False
    """Leave out the last samples of an epoch if they are too few for full batches on all ranks."""
    data_workers: int = 0
    """Processes per rank that load data; 0 loads it in the training process."""
    optimization: Optimization = field(default_factory=Optimization)
    """How a step is computed: precision, accumulation, clipping, compression."""
    scheduler_interval: Interval = Interval.STEP
    """When the scheduler is advanced; ReduceLROnPlateau is advanced after each evaluation instead, with its result."""
    early_stopping: EarlyStopping | None = None
    """When evaluations end the training before all its epochs or steps; None: never."""
    on_nan: OnNan = OnNan.STOP
    """What to do about a loss or gradient that is NaN or infinite; a state that is not finite is never saved."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is None:
                continue
            try:
                object.__setattr__(self, name, operator.index(value))
            except TypeError:
                # Such as 1e5: progress would have steps that its readers refuse.
                raise ValueError(f"Settings.{name} must be a whole number, not {value!r}") from None
            if value < 1:
                raise ValueError(f"Settings.{name} must be at least 1, not {value}")
        if self.total_epochs is None and self.max_steps is None:
            raise ValueError("Settings.total_epochs or Settings.max_steps must say when the training ends")
        if self.metric is not None:
            check_name("Settings.metric", self.metric)
        if self.keep_best is not None:
            object.__setattr__(self, "keep_best", one_of(Mode, "Settings.keep_best", self.keep_best))
        interval = one_of(Interval, "Settings.scheduler_interval", self.scheduler_interval)
        object.__setattr__(self, "scheduler_interval", interval)
        object.__setattr__(self, "on_nan", one_of(OnNan, "Settings.on_nan", self.on_nan))

    def done(self, epoch: int, step: int) -> bool:
        """Whether the training ends after this number of epochs and steps."""
        by_epochs = self.total_epochs is not None and epoch >= self.total_epochs
        return by_epochs or (self.max_steps is not None and step >= self.max_steps)
