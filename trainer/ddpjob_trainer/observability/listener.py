"""What a training tells while it runs, to whom it may concern."""

from dataclasses import dataclass

from ddpjob_trainer.process.activity import Activity


@dataclass(frozen=True, slots=True)
class Plan:
    """What lies before a training when it starts or resumes."""

    total_epochs: int
    total_steps: int
    step: int
    """Steps that are already done: 0, or those of the checkpoint."""
    resumed: bool


@dataclass(frozen=True, slots=True)
class LogRecord:
    """What is read back from the device on a log step."""

    step: int
    loss: float
    """Mean over all ranks."""
    learning_rate: float
    gradient_norm: float
    consumed: int
    """Samples that all ranks together have consumed in this process' life."""


class Listener:
    """Told of a training's progress on every rank, in the thread that trains; does nothing unless overridden.

    Whatever a listener raises ends the training. One that changes the model does so in `step_finished`: what changes
    later may miss the checkpoint of that step.
    """

    def started(self, plan: Plan) -> None:
        """The training begins, or goes on from a checkpoint."""

    def epoch_started(self, epoch: int, steps: int) -> None:
        """An epoch, counted from 1, begins with so many steps before it."""

    def step_finished(self, step: int, samples: int, seconds: float, waited: float) -> None:
        """A step is done: this rank's samples, seconds since the step before, seconds of it spent waiting for data."""

    def loss_computed(self, seconds: float) -> None:
        """The forward pass of a step is done, so long after the step before: from here on the ranks need each other."""

    def activity_changed(self, activity: Activity) -> None:
        """The rank now does this, which may be what it did before; `starting` at first, `finished` comes by itself."""

    def logged(self, record: LogRecord) -> None:
        """A log step is done."""

    def checkpoint_saved(self, step: int, seconds: float) -> None:
        """A checkpoint of this step is on disk; training stood still for so long.

        One written asynchronously is told of after a later step; on other ranks than 0 with the next one.
        """

    def evaluated(self, accuracy: float) -> None:
        """An evaluation is done, with an accuracy from 0 to 1; of one that measures a loss nobody is told."""

    def shortened(self, epochs: int, steps: int) -> None:
        """The training ends early: it has so many epochs and steps instead of those planned."""

    def finished(self) -> None:
        """All epochs are done."""

    def stopped(self, step: int) -> None:
        """The training ends after this step because it was asked to; what there is to save is saved."""

    def failed(self) -> None:
        """The training ends with an exception."""
