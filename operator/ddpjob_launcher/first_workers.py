"""Processes that a spare node keeps ready, to be its first workers once it has a place."""

# ruff: noqa: ANN401, SLF001 -- torch's objects, of whatever version the image has

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from .program import prepare_environment
from .spare_processes import SpareProcesses, worker_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .settings import Settings

# Seconds between the starts of two processes: each needs a processor at first.
_START_EVERY = 3.0


class FirstWorkers:
    """As many processes as the node has ranks, each of which has torch loaded and is used once."""

    def __init__(self, settings: Settings, folder: str, remember: Callable[[int, Sequence[str]], None]) -> None:
        """Args:
        settings: of the node.
        folder: for files of its own.
        remember: called with the local rank and the command of a worker for which a process was found.
        """
        self._settings, self._folder, self._remember = settings, folder, remember
        self._processes: SpareProcesses | None = None
        self._start_at = 0.0

    def prepare(self) -> None:
        """Start a process that is missing, unless one was started just before."""
        if time.monotonic() < self._start_at:
            return
        self._start_at = time.monotonic() + _START_EVERY
        processes = int(os.environ["PET_NPROC_PER_NODE"])
        if self._processes is None:
            self._processes = SpareProcesses(processes)
        # torch reads the number of threads when it is loaded.
        prepare_environment(self._settings, processes, self._folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
        self._processes.start(environment)

    def take(self, handler: Any, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        """A process that is ready for a worker that is about to start; None if there is none.

        Args:
            handler: torch's, of the worker.
            command: that it would be started with.
            environment: of the worker.
        """
        if self._processes is None:
            return None
        outputs = (handler._stdout, handler._stderr)
        taken = self._processes.take(worker_arguments(command), environment, outputs)
        if taken is not None:
            self._remember(int(environment["LOCAL_RANK"]), command)
        return taken

    def close(self) -> None:
        """End those that were not needed."""
        if self._processes is not None:
            self._processes.close()
