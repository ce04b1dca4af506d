"""Agrees on the step after which all ranks stop, through the store where they have met, and not by collectives.

A thread of each rank looks at the store a few times a second, so that a request is seen however long the steps take,
and costs them nothing. Each rank that has seen it writes down its last finished step, and from then on waits at the end
of its next one. Once all have done so, all are known to be at most one step after the largest of these, which becomes
the last step of all: none has passed it.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

INTERVAL: Final = 0.25
"""Seconds between two looks for a request."""
_AGREEING: Final = 0.02
"""The same while the ranks agree."""
_PATIENCE: Final = 10.0
"""Seconds that a rank waits for the others, whose threads only need a moment unless a process is gone."""

_log = logging.getLogger(__name__)


class Board(Protocol):
    """What all ranks read and write; torch's stores are such."""

    def set(self, key: str, value: str, /) -> object:
        """Write a value."""

    def get(self, key: str, /) -> bytes | str:
        """Read a value that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all of these are there."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number that begins at 0, and return it."""


class StopBoard:
    """One training's part of the board, seen from one rank."""

    def __init__(
        self,
        board: Board,
        prefix: str,
        *,
        rank: int,
        world_size: int,
        asked: Callable[[], bool],
        left: Callable[[], bool] = lambda: False,
        first: int = 0,
    ) -> None:
        """Args:
        board: of all ranks.
        prefix: of the keys; the same on all ranks, and of no other training.
        rank: of this process.
        world_size: number of processes.
        asked: whether this rank was asked to stop.
        left: whether a rank is known to be gone, which is not waited for.
        first: the last step before the training.
        """
        self._board = board
        self._prefix = prefix
        self._rank = rank
        self._world_size = world_size
        self._asked = asked
        self._left = left
        self._changed = threading.Condition()
        self._step = first
        self._armed = False
        self._last: int | None = None
        self._broken = False
        self._closing, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ddpjob-stop", daemon=True)

    def start(self) -> None:
        """Look for requests until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Look no longer; the others need not wait for this rank."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self._broken:
            try:
                self._arm()
            except Exception as reason:  # noqa: BLE001 whatever a store raises whose host is gone
                _log.debug("the store is gone: %s", reason)

    def finished(self, step: int) -> bool:
        """Whether all ranks stop after this step, which has just been finished; call it after each step."""
        with self._changed:
            self._step = step
            if not self._armed and (self._broken or not self._asked()):
                return False
        if not self._armed:
            # The others are not left to make more steps until their threads look: they wait for this rank in the next.
            self._announce()
        with self._changed:
            if self._armed and self._last is None:
                self._await_last()
            return self._last is not None and step >= self._last

    def reached(self, step: int) -> bool:
        """Whether this rank has seen a request; it has finished this step, and the ranks agree in another way."""
        with self._changed:
            self._step = step
            return self._armed

    def _await_last(self) -> None:
        for _ in range(round(_PATIENCE / INTERVAL)):
            known = self._changed.wait_for(lambda: self._last is not None or self._broken, INTERVAL)
            if known or self._left():
                return

    def _watch(self) -> None:
        try:
            while not self._seen():
                self._wake.wait(INTERVAL)
                if self._closing.is_set():
                    return
            self._arm()
            while not self._board.check([self._key("last")]):
                if self._closing.wait(_AGREEING):
                    return
            last = int(self._board.get(self._key("last")))
            with self._changed:
                self._last = last
                self._changed.notify_all()
        except Exception as reason:  # noqa: BLE001 as above
            self._break(reason)

    def _announce(self) -> None:
        try:
            self._board.set(self._key("asked"), "1")
            self._arm()
        except Exception as reason:  # noqa: BLE001 as above
            self._break(reason)
        self._wake.set()

    def _break(self, reason: Exception) -> None:
        if not self._closing.is_set():
            _log.warning("requests to stop are no longer seen: %s: %s", type(reason).__name__, reason)
        with self._changed:
            self._broken = True
            self._changed.notify_all()

    def _seen(self) -> bool:
        if self._asked():
            self._board.set(self._key("asked"), "1")
            return True
        return self._board.check([self._key("asked")])

    def _arm(self) -> None:
        """Write down the last finished step, once; who is the last to do so knows that of all."""
        with self._changed:
            if self._armed:
                return
            self._armed, step = True, self._step
        self._board.set(self._key(str(self._rank)), str(step))
        if self._board.add(self._key("armed"), 1) == self._world_size:
            steps = [int(self._board.get(self._key(str(rank)))) for rank in range(self._world_size)]
            self._board.set(self._key("last"), str(max(steps) + 1))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"
