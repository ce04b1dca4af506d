"""What a rank is doing, and since when: this distinguishes a rank that is behind from those that wait for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Activity(StrEnum):
    """What a rank is doing."""

    STARTING = "starting"
    DATA = "data"
    """Waiting for its data loader."""
    STEP = "step"
    """Forward, backward, a collective or the optimizer."""
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    FINISHED = "finished"


LONG: Final = frozenset({Activity.CHECKPOINT, Activity.EVALUATION})
"""Activities that may last as long as many steps."""


@dataclass(frozen=True, slots=True)
class Moment:
    """State of a rank at one moment; all seconds are of the process' own clock, never compared between machines."""

    activity: Activity
    activity_seconds: float
    step: int | None
    """The last one finished by this process; None before its first."""
    seconds_since_step: float | None
    quiet_seconds: float
    """Since the last finished step, or since a long activity began or ended after it."""


class _State(NamedTuple):
    activity: Activity
    since: float
    step: int | None
    stepped: float
    sign: float


class Pulse:
    """Written by the thread that trains, read by others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        clock: seconds, unaffected by changes of the machine's time.
        """
        self._clock = clock
        now = clock()
        # Replaced as a whole, so that a reader never sees half of it.
        self._state = _State(Activity.STARTING, now, None, now, now)

    def change(self, activity: Activity) -> None:
        """Something else begins, or the same continues."""
        state = self._state
        if activity is state.activity:
            return
        now = self._clock()
        sign = now if activity in LONG or state.activity in LONG else state.sign
        self._state = _State(activity, now, state.step, state.stepped, sign)

    def step_finished(self, step: int) -> None:
        """A step is done."""
        # A loop that reports only its steps is considered within one from its first step on.
        if self._state.activity is Activity.STARTING:
            self.change(Activity.STEP)
        state, now = self._state, self._clock()
        self._state = _State(state.activity, state.since, step, now, now)

    def moment(self) -> Moment:
        """The current state."""
        state, now = self._state, self._clock()
        return Moment(
            activity=state.activity,
            activity_seconds=now - state.since,
            step=state.step,
            seconds_since_step=None if state.step is None else now - state.stepped,
            quiet_seconds=now - state.sign,
        )
