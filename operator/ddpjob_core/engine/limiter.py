"""How progress writes are spread, so that thousands of running jobs cost the API server a bounded rate."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_BURST_SECONDS: Final = 0.5


class FairLimiter(Generic[K]):
    """A token bucket that gives tokens out in the order in which they were asked for: no key is starved by others."""

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        """Args:
        rate: tokens a second.
        clock: monotonic seconds.
        """
        self._interval = 1.0 / rate
        self._burst = _BURST_SECONDS
        self._clock = clock
        self._next = 0.0
        self._reserved: dict[K, float] = {}

    def ask(self, key: K) -> float:
        """0 where the key may go now; else the seconds after which to ask again, a token being kept for it by then."""
        now = self._clock()
        due = self._reserved.get(key)
        if due is None:
            self._next = max(self._next, now - self._burst) + self._interval
            due = self._next
        if due <= now:
            self._reserved.pop(key, None)
            return 0.0
        self._reserved[key] = due
        return due - now

    def drop(self, key: K) -> None:
        """The key needs no token any more: it has written by another reason, or is gone."""
        self._reserved.pop(key, None)
