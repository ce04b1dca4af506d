"""What a training reports while it runs, and the interface of those who want to know."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from ddpjob_trainer.observability.slowest import Slowest
from ddpjob_trainer.process.activity import Activity

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training has ahead when it starts or resumes."""

    total_epochs: int
    total_steps: int
    step: int
    """Steps already done: 0, or those of the checkpoint."""
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
    """Samples consumed by all ranks together since this process started."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation has found; the same on all ranks."""

    step: int
    """Optimizer steps before it."""
    metrics: Mapping[str, float]
    """By name."""
    metric: str | None = None
    """Name of the one that counts for early stopping, the learning rate and the best checkpoint; None: none does."""
    best: bool = False
    """Whether it is the best one so far."""
    no_improvement_for: int | None = None
    """Evaluations in a row that were no improvement, 0 after an improvement; None without early stopping."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: a listener may keep it."""

    model: "nn.Module"
    """On the rank's device, without what makes the ranks train it together; the same on all ranks."""
    optimizer: "Optimizer"


class Listener:
    """Notified of a training's course on every rank, in the thread that trains; does nothing unless overridden.

    An exception raised by a listener ends the training. A listener that changes the model does so in `step_finished`:
    later changes may miss the checkpoint of that step.

    One that has the methods `state_dict` and `load_state_dict` is saved in checkpoints, as rank 0 has it, and all ranks
    load it at a resume: after `attached`, and before `started`.
    """

    state_name: str = ""
    """Of its state in checkpoints; by default the name of its class. Two listeners with a state must not share it."""

    def attached(self, training: Training) -> None:
        """The training is set up, and has not resumed yet."""

    def started(self, plan: Plan) -> None:
        """The training begins, or continues from a checkpoint."""

    def epoch_started(self, epoch: int, steps: int) -> None:
        """An epoch, counted from 1, begins with this number of steps left."""

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:
        """A step is done.

        Args:
            step: its number, counted from 1.
            samples: of this rank.
            seconds: since the end of the previous step.
            data_seconds: how many of them this rank waited for data.
        """

    def loss_computed(self, seconds: float) -> None:
        """The forward pass is done, `seconds` after the previous step: from here on the ranks need each other."""

    def activity_changed(self, activity: Activity) -> None:
        """The rank now does this, possibly the same as before; it begins with `starting`, and `finished` is implied."""

    def logged(self, record: LogRecord) -> None:
        """A log step is done."""

    def slowest_changed(self, slowest: Slowest | None) -> None:
        """Another rank slows down the others, or the same one by another factor, or none any longer; on rank 0."""

    def not_finite(self, step: int, what: str) -> None:
        """A loss, a gradient or the state was found not to be finite, on all ranks.

        Args:
            step: after which it was found, or that is left out.
            what: one line that names what, since which step, and on which rank.
        """

    def checkpoint_saved(self, step: int, pause_seconds: float) -> None:
        """A checkpoint of this step is on disk; training paused for `pause_seconds`.

        An asynchronous one is reported after a later step; on ranks other than 0 together with the next one.
        """

    def measured(self, evaluation: Evaluation) -> None:
        """An evaluation is done, whatever it measures; before `evaluated`."""

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:
        """An evaluation is done; only called for those that measure an accuracy.

        Args:
            value: the accuracy, from 0 to 1.
            no_improvement_for: evaluations in a row that were no improvement, 0 after an improvement; None without
                early stopping.
        """

    def shortened(self, total_epochs: int, total_steps: int) -> None:
        """The training ends early: it has this number of epochs and steps instead of those planned."""

    def finished(self) -> None:
        """All epochs or steps are done."""

    def stopped(self, step: int) -> None:
        """The training was asked to stop and ends after this step; everything is saved."""

    def failed(self) -> None:
        """The training ends with an exception."""


def overridden(
    listeners: Sequence[Listener], method: Callable[Concatenate[Listener, _P], None]
) -> tuple[Callable[_P, None], ...]:
    """A method of the listeners that have one of their own, for what is called in each step."""
    found = [getattr(each, method.__name__) for each in listeners]
    return tuple(each for each in found if getattr(each, "__func__", None) is not method)
