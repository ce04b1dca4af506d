"""Whether the operator still works, in plain sentences."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from ddpjob_core.engine.queue import WorkQueue
from ddpjob_core.engine.store import Key

Check: TypeAlias = Callable[[], str | None]
"""What is wrong, None where nothing is."""

_BEAT: Final = 1.0


def watch_moves(resource: str, idle_for: Callable[[], float], limit: float) -> Check:
    """A watch that does not even try to reach the API server for longer than `limit` seconds is dead."""

    def check() -> str | None:
        idle = idle_for()
        if idle <= limit:
            return None
        return f"the watch of {resource} has done nothing for {idle:.0f} s (limit {limit:.0f} s)"

    return check


def watch_is_answered(resource: str, silent_for: Callable[[], float], limit: float) -> Check:
    """The API server has said nothing on a watch for longer than `limit` seconds: no fault of this process."""

    def check() -> str | None:
        silence = silent_for()
        if silence <= limit:
            return None
        return f"the watch of {resource} has been silent for {silence:.0f} s (limit {limit:.0f} s)"

    return check


def queue_moves(queue: WorkQueue[Key], limit: float) -> Check:
    """The queue is stuck when a job waits, or is reconciled, for longer than `limit` seconds."""

    def check() -> str | None:
        if queue.oldest > limit:
            return f"the oldest of {queue.depth} waiting jobs has waited for {queue.oldest:.0f} s (limit {limit:.0f} s)"
        running = queue.longest_running
        if running is not None and running[1] > limit:
            return f"job {'/'.join(running[0])} has been reconciled for {running[1]:.0f} s (limit {limit:.0f} s)"
        return None

    return check


class LoopMeter:
    """Measures how late the event loop is: whatever blocks it blocks every job."""

    def __init__(self, *, clock: Callable[[], float], limit: float = 10.0) -> None:
        self._clock = clock
        self._limit = limit
        self.lag = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            begun = self._clock()
            await asyncio.sleep(_BEAT)
            self.lag = max(0.0, self._clock() - begun - _BEAT)

    def check(self) -> str | None:
        """The event loop is late by more than the limit."""
        if self.lag <= self._limit:
            return None
        return f"the event loop was late by {self.lag:.1f} s (limit {self._limit:.0f} s)"


def problems(checks: tuple[Check, ...]) -> list[str]:
    """Everything that is wrong now."""
    return [problem for check in checks if (problem := check()) is not None]
