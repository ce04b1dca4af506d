"""How the ranks meet again after one of them was replaced: numbers in the store of their launchers.

Each replacement is a new generation, which the launcher counts before it starts the new process. Ranks count themselves
in at the points where they wait for each other, for each generation apart, so that those that know different ones never
meet.
"""

import time
from collections.abc import Callable
from typing import Final

from ddpjob_trainer.process.stop_board import Board

GENERATION: Final = "ddpjob/generation"
"""Key: replacements so far. The launcher counts them."""
ABANDONED: Final = "ddpjob/abandoned"
"""Key: above 0 once the ranks cannot meet. The launcher then restarts them all."""
READY: Final = "1"
"""Value of a rank's key while its launcher may replace others; the key is that of `ready_key`."""
IN_GROUP: Final = "process group"
"""The point at which the processes of all ranks are there."""
NEWS: Final = 2.0
"""Seconds in which the launcher of a rank that was killed says so; its peers notice within milliseconds."""
_INTERVAL: Final = 0.02
"""Seconds between two looks."""
_HURRIED: Final = 10.0
"""Seconds to wait at most once this process was asked to stop: a new one needs some to import torch."""


class Overtaken(Exception):  # noqa: N818 not an error: another generation has begun
    """Another rank was replaced meanwhile."""


class NotMetError(RuntimeError):
    """The ranks did not meet: the processes of all have to start again."""


def ready_key(rank: int) -> str:
    """The key under which a rank says whether it can go on without the process of another one."""
    return f"ddpjob/ready/{rank}"


def met_key(generation: int, point: str) -> str:
    """The key that counts the ranks of a generation which have come to a point."""
    return f"ddpjob/met/{generation}/{point}"


class Meeting:
    """One rank's view of the store."""

    def __init__(
        self,
        board: Board,
        *,
        rank: int,
        world_size: int,
        hurried: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Args:
        board: the store, by a connection of its own: one that waits is of no use to other threads.
        rank: of this process.
        world_size: number of processes.
        hurried: whether this process was asked to stop.
        clock: seconds.
        pause: waits for a number of seconds.
        """
        self._board = board
        self._rank = rank
        self._world_size = world_size
        self._hurried = hurried
        self._clock = clock
        self._pause = pause

    def newest(self) -> int:
        """The newest generation; 0 if no rank was replaced."""
        return self._board.add(GENERATION, 0)

    def declare(self, *, ready: bool) -> None:
        """Say whether this rank can go on without the process of another one."""
        self._board.set(ready_key(self._rank), READY if ready else "")

    def abandon(self) -> None:
        """Let no rank wait for the others any longer."""
        self._board.add(ABANDONED, 1)

    @property
    def abandoned(self) -> bool:
        """Whether a rank has given up."""
        return self._board.add(ABANDONED, 0) > 0

    def overtakes(self, generation: int, within: float = 0) -> bool:
        """Whether there is a newer generation than this one, and no rank has given up.

        Args:
            generation: that this rank belongs to.
            within: seconds to wait for one at most; not once this process was asked to stop.

        Raises:
            RuntimeError: the store is gone.
        """
        deadline = self._clock() + within
        while not self.abandoned:
            if self.newest() > generation:
                return True
            if self._clock() >= deadline or self._hurried():
                break
            self._pause(_INTERVAL)
        return False

    def meet(self, generation: int, point: str, patience: float) -> None:
        """Wait until all ranks of a generation have come to a point; each process comes there once.

        Args:
            generation: that this rank belongs to.
            point: name of it.
            patience: seconds after which this rank gives up, and with it all others.

        Raises:
            Overtaken: there is a newer generation.
            NotMetError: a rank has given up.
        """
        key = met_key(generation, point)
        count, deadline = self._board.add(key, 1), self._clock() + patience
        while count < self._world_size:
            if self.newest() > generation:
                raise Overtaken
            if self.abandoned:
                raise NotMetError(f"connection lost: a rank gave up waiting for the others ({point})")
            if self._hurried():
                deadline = min(deadline, self._clock() + _HURRIED)
            if self._clock() >= deadline:
                self.abandon()
                raise NotMetError(
                    f"connection lost: {self._world_size - count} of {self._world_size} ranks did not come in time "
                    f"({point})"
                )
            self._pause(_INTERVAL)
            count = self._board.add(key, 0)
