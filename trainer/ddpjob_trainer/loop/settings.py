"""How a training proceeds, as its user chooses it."""

from dataclasses import dataclass, field
from enum import StrEnum

from ddpjob_trainer.loop.early_stopping import EarlyStopping
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
    """Samples a process and batch; a step is one batch, or several (see `Optimization.accumulate`)."""
    save_every: int = 1
    """Epochs between two checkpoints and evaluations; the last epoch has both in any case."""
    save_every_steps: int | None = None
    """Steps between two checkpoints inside an epoch; None saves at the end of epochs alone."""
    log_every: int = 10
    """Steps between two times that the loss is read back, which waits for the device."""
    seed: int = 0
    drop_last: bool = False
    """Leave out the last samples of an epoch where they are too few for whole batches on all ranks."""
    data_workers: int = 0
    """Processes that load data; 0 loads it in the training process."""
    optimization: Optimization = field(default_factory=Optimization)
    """How a step is made: precision, accumulation, clipping, compression."""
    scheduler_interval: Interval = Interval.STEP
    """When the scheduler is advanced; ReduceLROnPlateau is after each evaluation instead, with its result."""
    early_stopping: EarlyStopping | None = None
    """When evaluations end the training before `total_epochs`; None never does."""

    def __post_init__(self) -> None:
        for name in ("total_epochs", "batch_size", "save_every", "save_every_steps", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        # A plain word is taken too.
        object.__setattr__(self, "scheduler_interval", Interval(self.scheduler_interval))
