"""The clock of a process: every duration is measured by it, and what it says goes into the status."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

_CATCHES_UP: Final = 0.02
"""Largest part of the time that passes by which the clock goes faster or slower to approach the machine's."""


class SteadyClock:
    """Begins with the machine's time and never jumps: no deadline passes, and none is put off, because a clock was set.

    A difference to the machine's time is made up for slowly, 72 s in an hour.
    """

    def __init__(self, wall: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        """Args:
        wall: the machine's time, which may be set at any moment.
        monotonic: seconds, which only ever increase.
        """
        self._wall = wall
        self._monotonic = monotonic
        self._at = monotonic()
        self._now = wall()

    def __call__(self) -> datetime:
        """The time."""
        at = self._monotonic()
        passed = timedelta(seconds=at - self._at)
        most = passed * _CATCHES_UP
        behind = self._wall() - (self._now + passed)
        self._at = at
        self._now += passed + max(-most, min(behind, most))
        return self._now
