"""Ending a training early because it was asked to: all ranks together, at the same step.

SIGTERM may reach one process of many or all of them. A rank that left by itself would keep the others waiting in a
collective, so all ranks look at certain steps whether any of them was asked. Each look agrees on the step of the next
one too, since the ranks' clocks would not: it costs one small all-reduce about once a second.

A rank that hangs never looks: it ends by itself soon after SIGTERM, as it would without a handler.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Protocol, Self

from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.last_resort import LastResort

EXIT_CODE: Final = 128 + signal.SIGTERM
"""How a shell tells a process that SIGTERM has ended. Never 0: who was asked to stop has not succeeded."""
SECONDS_BETWEEN_LOOKS: Final = 1.0
_MOST_STEPS_BETWEEN_LOOKS: Final = 1_000_000


class Stopped(SystemExit):
    """All ranks have agreed to stop, and have saved what is to be saved; ends the process with exit code 143."""

    def __init__(self, step: int) -> None:
        """Args:
        step: the last one that is done.
        """
        super().__init__(EXIT_CODE)
        self.step = step


class Sums(Protocol):
    """Adds up numbers over all ranks."""

    def sum(self, *values: float) -> list[float]:
        """The sums over all ranks of each of some numbers, exactly the same on every rank."""


class StopRequests:
    """Takes SIGTERM while it is entered, and says at which step all ranks stop.

    Every rank calls `agreed` after the same steps, and `agreed_now` at the same other points. A rank for which either
    is true saves, if there is something to save, and raises `Stopped`.
    """

    def __init__(self, sums: Sums, *, first: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        sums: over the ranks of the training.
        first: whether this is rank 0, whose speed decides when the next look is.
        clock: seconds.
        """
        self._sums = sums
        self._first = first
        self._clock = clock
        self._asked = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        self._handles = False
        self._pulse = Pulse(clock)
        self._last_resort: LastResort | None = None
        self._last_look: tuple[float, int] | None = None
        self._seconds_per_step = 0.0
        self._agreed_seconds_per_step = 0.0
        self._next_look = 0

    def __enter__(self) -> Self:
        # Python lets no other thread handle signals; such a rank is still told by the others.
        self._handles = threading.current_thread() is threading.main_thread()
        if self._handles:
            self._before = signal.signal(signal.SIGTERM, self._ask)
            self._last_resort = LastResort(self._pulse, lambda: self._agreed_seconds_per_step)
            self._last_resort.start()
            _entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._handles:
            return
        _entered.remove(self)
        if self._last_resort is not None:
            self._last_resort.close()
        if isinstance(reason, Stopped):
            # A launcher that has seen the first rank leave sends SIGTERM to the others, which are on their way out:
            # it must not change their exit code.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            self._give_back()

    def activity_changed(self, activity: Activity) -> None:
        """The rank now does this: a checkpoint or an evaluation may go on after SIGTERM, however long it lasts."""
        self._pulse.change(activity)

    def agreed(self, step: int) -> bool:
        """Whether all ranks stop after this step; looks about once a second, after every step where steps are slow."""
        self._pulse.step_finished(step)
        return step >= self._next_look and self.agreed_now(step)

    def agreed_now(self, step: int) -> bool:
        """Look at once, `step` being the last one that is done, and say whether all ranks stop."""
        self._pulse.step_finished(step)
        now = self._clock()
        if self._last_look is not None and step > self._last_look[1]:
            self._seconds_per_step = (now - self._last_look[0]) / (step - self._last_look[1])
        self._last_look = (now, step)
        asked, seconds_per_step = self._sums.sum(float(self._asked), self._seconds_per_step if self._first else 0.0)
        self._agreed_seconds_per_step = seconds_per_step
        steps = SECONDS_BETWEEN_LOOKS / seconds_per_step if seconds_per_step > 0 else 1
        self._next_look = step + max(int(min(steps, _MOST_STEPS_BETWEEN_LOOKS)), 1)
        return asked > 0

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def _give_back(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def in_child(self) -> None:
        """Leave SIGTERM alone in a process forked from this one: it is no rank, and whoever forked it may end it so."""
        self._give_back()
        if self._last_resort is not None:
            self._last_resort.leave_signals_alone()


_entered: Final[list[StopRequests]] = []


_masks: Final = threading.local()


def _hold_sigterm_back() -> None:
    # One that reaches a child before it has given the handler back would be taken for one to this process.
    if _entered:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_sigterm_in() -> None:
    before = vars(_masks).pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_children_alone() -> None:
    for requests in _entered:
        requests.in_child()
    _let_sigterm_in()


os.register_at_fork(before=_hold_sigterm_back, after_in_parent=_let_sigterm_in, after_in_child=_leave_children_alone)
