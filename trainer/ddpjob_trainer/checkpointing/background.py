"""One task at a time in the background of the thread that trains."""

import threading
from collections.abc import Callable
from typing import Final

_NAME: Final = "ddpjob-checkpoint"


class Background:
    """Runs work in a separate thread and keeps the reason of a failure until it is asked for.

    The thread is not a daemon: a process that ends, even with an exception, first finishes what was begun.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def start(self, work: Callable[[], str | None]) -> None:
        """Run work that returns the reason if it fails.

        Raises:
            RuntimeError: the previous work has not been waited for.
        """
        if self._thread is not None:
            raise RuntimeError("the previous work has not been waited for")

        def run() -> None:
            try:
                self._failure = work()
            except BaseException as unexpected:
                self._failure = f"{type(unexpected).__name__}: {unexpected}"
                raise

        thread = threading.Thread(target=run, name=_NAME)
        thread.start()
        # Only now: a thread that could not be started cannot be waited for.
        self._thread = thread

    @property
    def idle(self) -> bool:
        """Whether no work is in progress or waits to be asked for."""
        return self._thread is None

    @property
    def failed(self) -> bool:
        """Whether work has failed that has not been waited for."""
        return self._failure is not None

    def wait(self) -> str | None:
        """Wait for the work, if any, and return the reason if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        return failure
