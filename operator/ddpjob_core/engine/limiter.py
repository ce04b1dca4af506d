"""How progress writes are spread, so that thousands of running jobs cost the API server a bounded rate."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from ddpjob_core.engine.fair import FairQueue

_BURST_SECONDS: Final = 0.5


@dataclass(slots=True, eq=False)
class Turn:
    """One job's place in the order of writes.

    Attributes:
        group: the namespace in which it waits, None where it waits for nothing.
        number: how many had come to wait in that namespace before it.
        granted: whether it may write.
    """

    group: Hashable = None
    number: int = 0
    granted: bool = False


@dataclass(slots=True)
class _Group:
    joined: int = 0
    left: int = 0


class FairLimiter:
    """A token bucket that serves each namespace in turn, and in it the jobs in the order in which they asked."""

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        """Args:
        rate: tokens per second.
        clock: monotonic seconds.
        """
        self._interval = 1.0 / rate
        self._clock = clock
        self._last = 0.0
        self._waiting: FairQueue[Turn] = FairQueue()
        self._groups: dict[Hashable, _Group] = {}

    def ask(self, turn: Turn, group: Hashable) -> float:
        """0 if the job may write now; else the seconds after which to ask again, with its place kept.

        Args:
            turn: the job's place.
            group: its namespace.
        """
        now = self._clock()
        if turn.group is None and not turn.granted:
            if not self._waiting:
                # Tokens are kept for those who wait, hardly any for those who may come.
                self._last = max(self._last, now - _BURST_SECONDS)
            known = self._groups.setdefault(group, _Group())
            turn.group, turn.number = group, known.joined
            known.joined += 1
            self._waiting.add(turn, group)
        self._grant(now)
        if turn.granted:
            turn.granted = False
            return 0.0
        before = self._waiting.ahead_of(turn.number - self._groups[turn.group].left)
        return self._last + self._interval * before - now

    def leave(self, turn: Turn) -> None:
        """The job has written for another reason: it waits no more."""
        turn.granted = False
        if turn.group is not None:
            self._waiting.discard(turn, turn.group)
            self._count_out(turn)

    def _grant(self, now: float) -> None:
        while self._waiting and self._last + self._interval <= now:
            self._last += self._interval
            turn = self._waiting.take()
            turn.granted = True
            self._count_out(turn)

    def _count_out(self, turn: Turn) -> None:
        group = self._groups[turn.group]
        group.left += 1
        if group.left == group.joined:
            del self._groups[turn.group]
        turn.group = None
