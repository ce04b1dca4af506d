"""How long a training will be."""

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.source import Source


def planned_steps(source: Source, done: Position, accumulate: int, *, epochs: int, max_steps: int | None) -> int:
    """Steps of a whole training, including those done; if the source cannot know, `max_steps`, or else those done.

    Args:
        source: of the batches.
        done: how far the training has come.
        accumulate: batches per step.
        epochs: of the whole training.
        max_steps: after which it ends at the latest.
    """
    rest, whole = (source.steps(consumed, accumulate) for consumed in (done.consumed, 0))
    if done.epoch >= epochs:
        return done.step
    if rest is None or whole is None:
        return done.step if max_steps is None else max(max_steps, done.step)
    total = done.step + rest + (epochs - done.epoch - 1) * whole
    return total if max_steps is None else max(min(total, max_steps), done.step)
