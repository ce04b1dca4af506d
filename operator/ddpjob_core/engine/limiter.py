"""How progress writes are spread, so that thousands of running jobs cost the API server a bounded rate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_BURST_SECONDS: Final = 0.5


@dataclass(slots=True)
class Turn:
    """One job's place in the order of writes: when its token is due, None where it waits for none."""

    due: float | None = None


class FairLimiter:
    """A token bucket that hands out tokens in the order of requests: no job is starved by others."""

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        """Args:
        rate: tokens per second.
        clock: monotonic seconds.
        """
        self._interval = 1.0 / rate
        self._burst = _BURST_SECONDS
        self._clock = clock
        self._next = 0.0

    def ask(self, turn: Turn) -> float:
        """0 if the job may write now; else the seconds after which to ask again, with a token reserved for it."""
        now = self._clock()
        if turn.due is None:
            self._next = max(self._next, now - self._burst) + self._interval
            turn.due = self._next
        if turn.due <= now:
            turn.due = None
            return 0.0
        return turn.due - now
