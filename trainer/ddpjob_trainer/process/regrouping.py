"""The process groups of a training whose ranks are replaced: one after the other, in processes that stay.

The launcher replaces a rank that was killed, and counts a generation more (see `meeting`). The other ranks notice by a
connection that is closed, or by a look at that number; they leave their group, wait for the new process, and form the
next group with it.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from ddpjob_trainer.process.connections import Connections
from ddpjob_trainer.process.meeting import IN_GROUP, NEWS, Meeting, NotMetError, Overtaken
from ddpjob_trainer.process.patience import forget_group

_LOOK_EVERY: Final = 0.5
"""Seconds between two looks for a new generation."""
_CONNECT: Final = timedelta(seconds=30)
"""For the connections of a group all of whose ranks are there."""
_PATIENCE: Final = 300.0
"""Seconds for a new process to come to the training, and for a rank to end what it does by itself."""

_log = logging.getLogger(__name__)

Form = Callable[[str, timedelta | None], None]
"""Makes the default process group, given the beginning of its keys in the store and a timeout."""


class Regrouping:
    """Forms the process group of the newest generation, and ends its collectives when there is a newer one."""

    def __init__(
        self, meeting: Meeting, form: Form, timeout: timedelta | None, *, membership: int = 0, rejoin: float = 0
    ) -> None:
        """Args:
        meeting: of the ranks.
        form: makes the group, of gloo.
        timeout: of its collectives; None is torch's own choice.
        membership: generation of the nodes' membership in which this process was started.
        rejoin: seconds in which a lost node comes back in another pod; 0: it never does.
        """
        self._meeting = meeting
        self._form = form
        self._timeout = timeout
        self._connections = Connections()
        self._left, self._broken = threading.Event(), threading.Event()
        self._watch: threading.Thread | None = None
        self.rejoin: Final = rejoin
        """Seconds in which a lost node comes back in another pod; 0: it never does."""
        self.membership = membership
        """Generation of the nodes' membership in which this group was formed."""
        self.generation = 0
        """Replacements that this rank knows of."""
        self.replaced = 0
        """Those of them that were in pods that have stayed."""
        self.ready = False
        """Whether this rank can go on without the process of another one."""
        self.is_awaited = False
        """Whether other ranks wait for this process, which has not come to them yet."""

    def join(self) -> None:
        """Form the group of the newest generation, with all ranks.

        Raises:
            NotMetError: a rank has given up.
            SubstitutedError: another pod has the place of this one.
            RuntimeError: the ranks cannot reach each other.
        """
        while not self._joined():
            _log.info("another rank was replaced meanwhile")
        self._left, self._broken = threading.Event(), threading.Event()
        forget_group(self._broken.is_set)
        self._watch = threading.Thread(target=self._look, args=(self.generation,), daemon=True)
        self._watch.start()

    def close(self) -> None:
        """Look for newer generations no longer."""
        self._left.set()
        if self._watch is not None:
            self._watch.join()
            self._watch = None

    def leave(self) -> None:
        """Leave the group, whatever its ranks wait for."""
        self.close()
        self._connections.break_off()
        if dist.is_initialized():
            dist.destroy_process_group()

    def declare(self, *, ready: bool) -> None:
        """Say whether this rank can go on without the process of another one; only then others are replaced."""
        self.ready = ready
        with suppress(RuntimeError):
            self._meeting.declare(ready=ready)

    def abandon(self) -> None:
        """Let no rank wait for the others any longer."""
        with suppress(RuntimeError):
            self._meeting.abandon()

    @property
    def is_broken(self) -> bool:
        """Whether the connections of the group were ended, because a rank of it is gone."""
        return self._broken.is_set()

    def lose(self) -> None:
        """Say that this rank has lost a connection.

        Raises:
            RuntimeError: the store is gone; as below.
        """
        self._meeting.lose(self.generation)

    def is_whole(self) -> bool:
        """Whether all ranks have said so, so that there is no process to wait for."""
        return self._meeting.is_whole(self.generation)

    def stop(self) -> None:
        """Say that this rank has stopped with all others, whether it ends or waits for other ranks than those."""
        with suppress(RuntimeError):
            self._meeting.stop(self.generation)

    def await_stop(self) -> None:
        """Before this process ends: wait until no rank needs it any longer, without a collective.

        Those that were not asked to stop themselves wait for the next generation, and take part in none.
        """
        with suppress(RuntimeError):
            self._meeting.await_stop(self.generation)

    def meet(self, point: str) -> None:
        """Wait for all ranks, without a collective.

        Raises:
            Overtaken: there is a newer generation.
            NotMetError: a rank has given up.
        """
        self._meeting.meet(self.generation, point, _PATIENCE)
        self.is_awaited = False

    def is_overtaken(self, within: float = 0, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Whether there is a newer generation, and no rank has given up; see `Meeting.overtakes`.

        Raises:
            RuntimeError: the store is gone.
        """
        return self._meeting.overtakes(self.generation, within, unless=unless)

    def _joined(self) -> bool:
        generation = self._meeting.newest()
        self._meeting.keep_out()
        self.generation = generation
        # A later one may have begun: then this one is not joined.
        self.replaced = max(0, generation - self._meeting.substitutions())
        self.membership = self._meeting.membership() or self.membership
        if generation == 0:
            with self._connections.opening():
                self._form("ddpjob/1", self._timeout)
            return True
        try:
            self._meeting.meet(generation, IN_GROUP, _PATIENCE)
            with self._connections.opening():
                self._form(f"ddpjob/generation/{generation}", _CONNECT)
        except Overtaken:
            return False
        except NotMetError:
            raise
        except RuntimeError:
            # One of them was killed just now, perhaps: its launcher is slower to say so than its connections.
            if not self._meeting.overtakes(generation, within=NEWS):
                raise
            if dist.is_initialized():
                dist.destroy_process_group()
            return False
        self._restore_timeout()
        self.is_awaited = True
        return True

    def _restore_timeout(self) -> None:
        c10d: Any = dist.distributed_c10d
        c10d._set_pg_timeout(self._timeout or dist.default_pg_timeout, dist.group.WORLD)  # noqa: SLF001 torch has no public function

    def _look(self, generation: int) -> None:
        try:
            while not self._left.wait(_LOOK_EVERY):
                if self._meeting.newest() > generation or self._meeting.abandoned:
                    self._broken.set()
                    self._connections.break_off()
                    return
        except RuntimeError as reason:
            _log.debug("the store is gone: %s", reason)
