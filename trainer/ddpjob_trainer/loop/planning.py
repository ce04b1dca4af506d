"""How long a training will be."""

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import StepSize
from ddpjob_trainer.data.source import Source


def planned_steps(source: Source, done: Position, step: StepSize, *, epochs: int | None, max_steps: int | None) -> int:
    """Steps of a whole training, including those done; if the source cannot know, `max_steps`, or else those done.

    Args:
        source: of the batches.
        done: how far the training has come.
        step: its size.
        epochs: of the whole training; None: as many as `max_steps` need.
        max_steps: after which it ends at the latest.
    """
    if epochs is None:
        return max(max_steps or 0, done.step)
    rest, whole = (source.steps(consumed, step) for consumed in (done.consumed, 0))
    if done.epoch >= epochs:
        return done.step
    if rest is None or whole is None:
        return done.step if max_steps is None else max(max_steps, done.step)
    total = done.step + rest + (epochs - done.epoch - 1) * whole
    return total if max_steps is None else max(min(total, max_steps), done.step)


def planned_epochs(source: Source, done: Position, step: StepSize, *, total_steps: int) -> int:
    """Epochs of a whole training, the last of which may not be read to its end.

    Args:
        source: of the batches, which knows how many it has.
        done: how far the training has come.
        step: its size.
        total_steps: of the whole training.
    """
    left = total_steps - done.step
    if left <= 0:
        return done.epoch + (done.consumed > 0)
    rest, whole = (source.steps(consumed, step) or 0 for consumed in (done.consumed, 0))
    return done.epoch + 1 - (min(rest - left, 0) // max(whole, 1))
