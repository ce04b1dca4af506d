"""How a training proceeds, as chosen by its user."""

from dataclasses import dataclass, field
from enum import StrEnum

from ddpjob_trainer.loop.choice import one_of
from ddpjob_trainer.loop.early_stopping import EarlyStopping
from ddpjob_trainer.loop.finite import OnNan
from ddpjob_trainer.loop.optimization import Optimization


class Interval(StrEnum):
    """How often a scheduler is advanced."""

    STEP = "step"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a training proceeds."""

    total_epochs: int
    batch_size: int
    """Samples per process and batch; a step is one batch, or several (see `Optimization.accumulate`)."""
    save_every: int = 1
    """Epochs between two checkpoints and evaluations; the last epoch has both in any case."""
    save_every_steps: int | None = None
    """Steps between two checkpoints within an epoch; None saves only at the end of epochs."""
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
    """When evaluations end the training before `total_epochs`; None: never."""
    on_nan: OnNan = OnNan.STOP
    """What to do about a loss or gradient that is NaN or infinite; a state that is not finite is never saved."""

    def __post_init__(self) -> None:
        for name in ("total_epochs", "batch_size", "save_every", "save_every_steps", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Settings.{name} must be at least 1, not {value}")
        interval = one_of(Interval, "Settings.scheduler_interval", self.scheduler_interval)
        object.__setattr__(self, "scheduler_interval", interval)
        object.__setattr__(self, "on_nan", one_of(OnNan, "Settings.on_nan", self.on_nan))
