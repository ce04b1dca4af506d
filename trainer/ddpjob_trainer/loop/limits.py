"""How long a loop of one's own trains, and what else a session is asked for."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.process.environment import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What a session was asked for."""

    seed: int
    how: Optimization
    save_every: int
    save_every_steps: int | None
    log_every: int
    name: str | None
    clock: Callable[[], float] = time.perf_counter


class Limits:
    """Epochs and steps, counted from the beginning of the training, after which it is complete."""

    def __init__(self) -> None:
        self._epochs = 0
        self._steps = math.inf
        # Those of the loops that have come to their end.
        self._complete = (-1, -math.inf)

    def ask(self, epochs: int, max_steps: int | None, position: Position) -> None:
        """A loop begins.

        Raises:
            MisuseError: another one with these limits has ended, as in a loop over the epochs: it would do nothing.
        """
        self._epochs, self._steps = epochs, math.inf if max_steps is None else max_steps
        if self.reached(position) and self._epochs <= self._complete[0] and self._steps <= self._complete[1]:
            raise MisuseError(
                f"session.steps(epochs={epochs}) was called again, and no step is left: the epochs of the whole "
                "training count, also those before. Call it once with all of them, or with more each time"
            )

    def reached(self, position: Position) -> bool:
        """Whether the training is complete."""
        return position.epoch >= self._epochs or position.step >= self._steps

    def complete(self) -> None:
        """The loop has come to its end."""
        self._complete = (self._epochs, self._steps)


def check_counts(of: str, **counts: int | None) -> None:
    """Check numbers of epochs or steps, by name; None is one that was not given.

    Args:
        of: what has them, for the message.
        counts: by name.

    Raises:
        ValueError: one is below 1.
    """
    for what, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{of}({what}=...) must be at least 1, not {value}")
