"""Slows down a job whose reconciles never stop acting: a bug, or a neighbour that undoes what the operator does."""

from dataclasses import dataclass
from typing import Final

MOST_IN_A_ROW: Final = 16
"""Reconciles in a row that may each act. A job needs a handful."""
MOST_AT_ONCE: Final = 48
"""Reconciles that may act in quick succession, others in between: some restarts that follow each other at once."""
SECONDS_PER_ACT: Final = 2.0
"""In the long run a job acts no more often than once in so many seconds."""
_FIRST: Final = 0.5
_LONGEST: Final = 60.0


@dataclass(slots=True)
class Brake:
    """How often a job has acted lately.

    Attributes:
        in_a_row: reconciles since the last one that had nothing to do.
        level: reconciles that acted, less one for each `SECONDS_PER_ACT` that has passed.
        at: when one acted last.
    """

    in_a_row: int = 0
    level: float = 0.0
    at: float = 0.0

    def rested(self) -> None:
        """A reconcile had nothing to do."""
        self.in_a_row = 0

    def acted(self, now: float) -> float:
        """Seconds for which the job has to be left alone after a reconcile that acted, usually 0.

        Args:
            now: monotonic seconds.
        """
        self.in_a_row += 1
        self.level = max(0.0, self.level - (now - self.at) / SECONDS_PER_ACT) + 1
        self.at = now
        excess = max(self.in_a_row - MOST_IN_A_ROW, self.level - MOST_AT_ONCE)
        return 0.0 if excess <= 0 else float(min(_FIRST * 2.0 ** min(excess, 16), _LONGEST))
