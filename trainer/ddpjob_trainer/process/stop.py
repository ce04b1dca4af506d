"""Ending a training early on request: all ranks together, at the same step.

SIGTERM may reach one process of many or all of them. A rank that left alone would keep the others waiting in a
collective, so the ranks agree on their last step, through the store where they have met (see stop_board). MPI has no
store: there, each rank begins a small all-reduce at the end of each step, and reads it at the end of the next one. No
rank waits for it, since in between all have exchanged their gradients, and a request is seen after one more step,
however long that is.

A rank that hangs never checks: it ends by itself shortly before the end of the job's grace period, and shows where.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, Protocol, Self

from ddpjob_trainer.process.activity import Activity, Pulse
from ddpjob_trainer.process.last_resort import LastResort
from ddpjob_trainer.process.stop_board import Board, StopBoard

EXIT_CODE: Final = 128 + signal.SIGTERM
"""What a shell reports for a process ended by SIGTERM. Never 0: a process that was asked to stop has not succeeded."""


class Stopped(SystemExit):
    """All ranks have agreed to stop and have saved; ends the process with exit code 143."""

    def __init__(self, step: int) -> None:
        """Args:
        step: the last finished one.
        """
        super().__init__(EXIT_CODE)
        self.step = step


class Peers(Protocol):
    """The ranks of a training; a `Group` is one."""

    @property
    def rank(self) -> int:
        """Of this process."""

    @property
    def world_size(self) -> int:
        """Number of processes."""

    @property
    def board(self) -> Board | None:
        """What all ranks read and write, None if there is none."""

    @property
    def grace_period_seconds(self) -> float:
        """After this time a process that was asked to stop is killed."""

    def sum(self, *values: float) -> list[float]:
        """The sums over all ranks, one for each of the numbers, exactly the same on every rank."""

    def begin_sum(self, value: float) -> Callable[[], float]:
        """Start to add up a number of each rank; what is returned waits for the sum."""


class StopRequests:
    """Handles SIGTERM while it is entered, and decides at which step all ranks stop.

    Every rank calls `agreed` after the same steps, and `agreed_now` at the same other points. When either returns True
    the rank saves, if there is something to save, and raises `Stopped`.
    """

    def __init__(
        self,
        peers: Peers,
        clock: Callable[[], float] = time.monotonic,
        *,
        left: Callable[[], bool] = lambda: False,
    ) -> None:
        """Args:
        peers: the ranks of the training.
        clock: seconds.
        left: whether a rank is known to be gone.
        """
        self._left = left
        self._peers = peers
        self._asked = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        self._handles = False
        self._pulse = Pulse(clock)
        self._last_resort: LastResort | None = None
        self._board: StopBoard | None = None
        # Without a board: how many ranks had been asked at the end of the last step.
        self._asked_before: Callable[[], float] | None = None

    def __enter__(self) -> Self:
        _count[0] += 1
        if _noted:
            self._asked = True
            _noted.clear()
        if self._peers.board is not None:
            self._board = StopBoard(
                self._peers.board,
                f"ddpjob/stop/{_count[0]}",
                rank=self._peers.rank,
                world_size=self._peers.world_size,
                asked=lambda: self._asked,
                left=self._left,
            )
            self._board.start()
        # Python handles signals only in the main thread; in other threads the rank still learns of it from its peers.
        self._handles = threading.current_thread() is threading.main_thread()
        if self._handles:
            self._before = signal.signal(signal.SIGTERM, self._ask)
            self._last_resort = LastResort(self._pulse, self._peers.grace_period_seconds, asked=self._note)
            self._last_resort.start()
            _entered.append(self)
            # A process that takes the place of a lost one does not hear of it before.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None
        if not self._handles:
            return
        _entered.remove(self)
        if self._last_resort is not None:
            self._last_resort.close()
        if self._asked and _noting.is_set():
            _noted.add(signal.SIGTERM)
        if isinstance(reason, Stopped) and not _noting.is_set():
            # A launcher that has seen the first rank leave sends SIGTERM to the others, which are ending too: it must
            # not change their exit code.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            self._restore_handler()

    @property
    def is_asked(self) -> bool:
        """Whether this rank itself was asked to stop."""
        return self._asked

    def activity_changed(self, activity: Activity) -> None:
        """The rank now does this: after SIGTERM a checkpoint or an evaluation may take as long as it needs."""
        self._pulse.change(activity)

    def agreed(self, step: int) -> bool:
        """Whether all ranks stop after this step; call it after each one, or `agreed_now` instead."""
        self._pulse.step_finished(step)
        if self._board is not None:
            return self._board.finished(step)
        before, self._asked_before = self._asked_before, self._peers.begin_sum(float(self._asked))
        return before is not None and before() > 0

    def agreed_now(self, step: int) -> bool:
        """Check immediately whether all ranks stop; `step` is the last finished one."""
        self._pulse.step_finished(step)
        seen = self._board is not None and self._board.reached(step)
        (asked,) = self._peers.sum(float(self._asked or seen))
        return asked > 0

    def _note(self) -> None:
        self._asked = True

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def _restore_handler(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def in_child(self) -> None:
        """Restore SIGTERM in a process forked from this one: it is not a rank, and may be ended by SIGTERM."""
        self._restore_handler()
        if self._last_resort is not None:
            self._last_resort.leave_signals_alone()


_entered: Final[list[StopRequests]] = []
_count: Final = [0]
"""Trainings of this process so far: each has keys of its own, the same on all ranks."""
MORE_THAN_BEFORE: Final = 1_000_000
"""To count from where a new process may have counted trainings that the others have not had."""


_noting: Final = threading.Event()
"""Whether another training of this process goes on with what one leaves behind."""
_noted: Final[set[int]] = set()
"""Signals that no training has obeyed yet."""


def is_requested() -> bool:
    """Whether a request to stop has come to this process that its training, or the next one, will obey."""
    return bool(_noted) or any(each.is_asked for each in _entered)


@contextmanager
def noting_requests() -> Iterator[None]:
    """A request to stop that a training in the body has not obeyed, or that comes between two, is seen by the next."""
    if threading.current_thread() is not threading.main_thread() or _noting.is_set():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: _noted.add(number))
    _noting.set()
    try:
        yield
    except Stopped:
        # As above.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    finally:
        _noting.clear()
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            if _noted:
                os.kill(os.getpid(), signal.SIGTERM)
        _noted.clear()


def forget_trainings(before: int = 0) -> None:
    """Count trainings from another number: in the next process group there are new processes, which have had others.

    Args:
        before: number to count from, the same on all ranks.
    """
    _count[0] = before


_masks: Final = threading.local()


def _block_sigterm() -> None:
    # A signal that reaches a child before it has restored the handler would be mistaken for one to this process.
    if _entered:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _unblock_sigterm() -> None:
    before = vars(_masks).pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _restore_in_child() -> None:
    for requests in _entered:
        requests.in_child()
    _unblock_sigterm()


os.register_at_fork(before=_block_sigterm, after_in_parent=_unblock_sigterm, after_in_child=_restore_in_child)
