"""A work queue of keys: a key waits only once however often it is added, and is processed by one worker at a time."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ddpjob_core.engine.fair import FairQueue

K = TypeVar("K", bound=Hashable)

_FIRST_BACKOFF: Final = 0.5
_LONGEST_BACKOFF: Final = 60.0

_log = logging.getLogger(__name__)


class Timer(Protocol):
    """A call that will be made unless it is cancelled."""

    def cancel(self) -> None:
        """Do not make it."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]


@dataclass(slots=True)
class _Delayed:
    due: float
    timer: Timer


class WorkQueue(Generic[K]):
    """Keys to process, now or later.

    Nothing is lost: a key that is added while it is being processed is processed again afterwards, since the worker may
    have read the state before the change that the key was added for.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        call_later: CallLater,
        group: Callable[[K], Hashable] = lambda _: None,
        jitter: Callable[[], float] = lambda: random.uniform(0.75, 1.0),  # noqa: S311 spreads retries, guards nothing
    ) -> None:
        """Args:
        clock: monotonic seconds.
        call_later: makes a call after so many seconds of that clock.
        group: of a key, such as its namespace; groups are served in turn.
        jitter: factor of each backoff.
        """
        self._clock = clock
        self._call_later = call_later
        self._jitter = jitter
        self._group = group
        self._waiting: dict[K, float] = {}
        self._turns: FairQueue[K] = FairQueue()
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._delayed: dict[K, _Delayed] = {}
        self._failures: dict[K, int] = {}
        self._held: dict[K, float] = {}
        self._available = asyncio.Event()
        self._open = True

    def close(self) -> None:
        """Drop all keys, and those that are still added until `open`."""
        self._open = False
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        self._waiting.clear()
        self._turns = FairQueue()
        self._again.clear()
        self._failures.clear()

    def open(self) -> None:
        """Take keys again."""
        self._open = True

    def add(self, key: K) -> None:
        """Process the key as soon as a worker is free."""
        if not self._open:
            return
        if key in self._running:
            self._again.add(key)
            return
        left = self._held.get(key, 0.0) - self._clock()
        if left > 0:
            self.add_after(key, left)
            return
        self._held.pop(key, None)
        self._waiting.setdefault(key, self._clock())
        self._turns.add(key, self._group(key))
        self._available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Process the key after so many seconds; the earliest of several such requests counts.

        A worker that takes the key before then cancels the request: it sees everything and makes a new one if needed.
        """
        if not self._open:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock() + seconds
        earlier = self._delayed.get(key)
        if earlier is not None:
            if earlier.due <= due:
                return
            earlier.timer.cancel()
        self._delayed[key] = _Delayed(due, self._call_later(seconds, lambda: self._promote(key)))

    def hold(self, key: K, seconds: float) -> None:
        """Do not process the key for so many seconds, however often it is added; it is processed then, if it was."""
        self._held[key] = self._clock() + seconds

    def release(self, key: K) -> None:
        """Process the key again whenever it is added."""
        self._held.pop(key, None)

    def retry(self, key: K, after: float | None = None) -> float:
        """Process the key again after a failure; returns the delay in seconds.

        Args:
            key: what failed.
            after: least delay, as the server asked for it. Otherwise it doubles with each consecutive failure.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff = min(_FIRST_BACKOFF * 2.0 ** min(failures - 1, 16), _LONGEST_BACKOFF) * self._jitter()
        seconds = max(backoff, after or 0.0)
        self.add_after(key, seconds)
        return seconds

    def succeeded(self, key: K) -> None:
        """The next failure of the key counts as the first."""
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[K], Awaitable[None]]) -> None:
        """Pass keys to `handle`, one after another, until cancelled. Run it once per worker.

        `handle` deals with its own failures; an exception that it raises is logged, and the key is retried.
        """
        while True:
            key = await self._take()
            try:
                await handle(key)
            except Exception:  # noqa: BLE001 one broken key must not stop a worker
                _log.exception("processing %s failed", key)
                self.retry(key)
            finally:
                self._done(key)
            # Thousands of jobs that need nothing must not hold the event loop until the last has been looked at.
            await asyncio.sleep(0)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._waiting)

    @property
    def oldest(self) -> float:
        """Seconds that the oldest waiting key has waited, 0 where none waits."""
        return self._clock() - next(iter(self._waiting.values())) if self._waiting else 0.0

    @property
    def longest_running(self) -> tuple[K, float] | None:
        """The key that has been processed the longest, and for how many seconds."""
        if not self._running:
            return None
        key = min(self._running, key=self._running.__getitem__)
        return key, self._clock() - self._running[key]

    async def _take(self) -> K:
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        key = self._turns.take()
        del self._waiting[key]
        self._running[key] = self._clock()
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.timer.cancel()
        return key

    def _done(self, key: K) -> None:
        del self._running[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self, key: K) -> None:
        self._delayed.pop(key, None)
        self.add(key)
