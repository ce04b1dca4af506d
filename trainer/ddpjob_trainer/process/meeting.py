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
SUBSTITUTED: Final = "ddpjob/substituted"
"""Key: how many of them were of lost nodes, whose pods have others in their place."""
MEMBERSHIP: Final = "ddpjob/membership"
"""Key: the generation of the membership after the last of these."""
ABANDONED: Final = "ddpjob/abandoned"
"""Key: above 0 once the ranks cannot meet. The launcher then restarts them all."""
READY: Final = "1"
"""Value of a rank's key while its launcher may replace others; the key is that of `ready_key`."""
IN_GROUP: Final = "process group"
"""The point at which the processes of all ranks are there."""
NEWS: Final = 2.0
"""Seconds in which the launcher of a rank that was killed says so; its peers notice within milliseconds."""
LOST: Final = "lost"
"""The point at which a rank has lost a connection, and waits for news of the process behind it."""
STOPPED: Final = "stopped"
"""The point at which all ranks have saved because some of them were asked to stop."""
_INTERVAL: Final = 0.02
"""Seconds between two looks."""
_HURRIED: Final = 10.0
"""Seconds to wait at most once this process was asked to stop: a new one needs some to import torch."""


class Overtaken(Exception):  # noqa: N818 not an error: another generation has begun
    """Another rank was replaced meanwhile."""


class NotMetError(RuntimeError):
    """The ranks did not meet: the processes of all have to start again."""


class SubstitutedError(RuntimeError):
    """This process was taken for lost, and must not meet the others again."""


def ready_key(rank: int) -> str:
    """The key under which a rank says whether it can go on without the process of another one."""
    return f"ddpjob/ready/{rank}"


def holder_key(rank: int) -> str:
    """The key that says which generation of the membership has brought the pod that a rank is in."""
    return f"ddpjob/holder/{rank}"


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
        member: int = 0,
        hurried: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Args:
        board: the store, by a connection of its own: one that waits is of no use to other threads.
        rank: of this process.
        world_size: number of processes.
        member: generation of the membership that has brought this pod.
        hurried: whether this process was asked to stop.
        clock: seconds.
        pause: waits for a number of seconds.
        """
        self._board = board
        self._rank = rank
        self._world_size = world_size
        self._member = member
        self._hurried = hurried
        self._clock = clock
        self._pause = pause

    def newest(self) -> int:
        """The newest generation; 0 if no rank was replaced."""
        return self._board.add(GENERATION, 0)

    def substitutions(self) -> int:
        """How many generations have begun with the loss of a node."""
        return self._board.add(SUBSTITUTED, 0)

    def membership(self) -> int | None:
        """The generation of the membership since the last of these; None without any."""
        return int(self._board.get(MEMBERSHIP)) if self._board.check([MEMBERSHIP]) else None

    def keep_out(self) -> None:
        """End here if another pod has the place of this one, which was taken for lost.

        To be asked once the newest generation is known, and before this rank counts itself in: the launcher writes
        down who has a place before it begins a generation, so that no rank that had one can be in it.

        Raises:
            SubstitutedError: another pod has it.
        """
        key = holder_key(self._rank)
        if self._board.check([key]) and int(self._board.get(key)) != self._member:
            raise SubstitutedError(f"another pod has taken the place of rank {self._rank}, whose node was lost")

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

    def overtakes(self, generation: int, within: float = 0, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Whether there is a newer generation than this one, and no rank has given up.

        Args:
            generation: that this rank belongs to.
            within: seconds to wait for one at most; not once this process was asked to stop, as a launcher asks that
                restarts all workers, and the end of the job.
            unless: what ends the wait as well.

        Raises:
            RuntimeError: the store is gone.
        """
        deadline = self._clock() + within
        while not self.abandoned:
            if self.newest() > generation:
                return True
            if self._clock() >= deadline or self._hurried() or unless():
                break
            self._pause(_INTERVAL)
        return False

    def lose(self, generation: int) -> None:
        """Say that this rank has lost its connection to another one in the group of this generation."""
        self._board.add(met_key(generation, LOST), 1)

    def is_whole(self, generation: int) -> bool:
        """Whether all ranks have said so: connections were lost, and no process."""
        return self._board.add(met_key(generation, LOST), 0) >= self._world_size

    def stop(self, generation: int) -> None:
        """Say that this rank has stopped, with all others, and needs the group of this generation no longer."""
        self._board.add(met_key(generation, STOPPED), 1)

    def await_stop(self, generation: int) -> None:
        """Wait until all ranks have said so, which takes a moment, unless one of them is gone."""
        deadline = self._clock() + _HURRIED
        while self._board.add(met_key(generation, STOPPED), 0) < self._world_size and self._clock() < deadline:
            self._pause(_INTERVAL)

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
