"""Processes of the agent that have torch loaded, and wait to take the place of a worker."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from .commands import RUN, command
from .spare import MODULE

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

# What differs between the workers of a node: a spare process gets it with its place.
_OF_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_ERROR_FILE")


class SpareProcesses:
    """As many as are wanted; each is used once, and another one started after it."""

    def __init__(self, wanted: int) -> None:
        """Args:
        wanted: how many.
        """
        self._most = wanted
        self._waiting: list[subprocess.Popen[bytes]] = []

    @property
    def wanted(self) -> int:
        """How many are missing."""
        self._waiting = [each for each in self._waiting if each.poll() is None]
        return self._most - len(self._waiting)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start one that is missing: one at a time, since each needs a processor for some seconds.

        Args:
            environment: of a worker of this node.
        """
        if self.wanted <= 0:
            return
        shared = {name: value for name, value in environment.items() if name not in _OF_RANK}
        with blocked_stops():
            self._waiting.append(
                subprocess.Popen(command(MODULE), env=shared, stdin=subprocess.PIPE, start_new_session=True)
            )

    def take(
        self, arguments: Sequence[str], environment: Mapping[str, str], outputs: tuple[Any, Any]
    ) -> subprocess.Popen[bytes] | None:
        """Give the first one the place of a worker; None if there is none.

        Args:
            arguments: of the worker's `run`.
            environment: of the worker.
            outputs: files for what it prints and for its errors; None: those of this process.
        """
        while self._waiting:
            spare = self._waiting.pop(0)
            place = {
                "arguments": list(arguments),
                "environment": dict(environment),
                "outputs": [None if each is None else each.name for each in outputs],
            }
            if spare.stdin is None:
                continue
            try:
                with spare.stdin as pipe:
                    pipe.write(json.dumps(place).encode())
            except OSError:
                # It was killed as well.
                continue
            if spare.poll() is None:
                return spare
        return None

    def close(self) -> None:
        """End them."""
        self._most = 0
        for each in self._waiting:
            # It ends by itself when nothing more can come.
            if each.stdin is not None:
                with contextlib.suppress(OSError):
                    each.stdin.close()
        self._waiting = []


@contextlib.contextmanager
def blocked_stops() -> Iterator[None]:
    """Let a process that is started meanwhile not hear of SIGTERM before its training handles it.

    The ranks that wait for it could otherwise not save.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_arguments(started: Sequence[str] | str | os.PathLike[str] | bytes) -> list[str]:
    """The arguments of a worker's `run`, given those that its process was started with."""
    listed = [str(each) for each in started] if isinstance(started, (list, tuple)) else []
    return listed[listed.index(RUN) + 2 :]
