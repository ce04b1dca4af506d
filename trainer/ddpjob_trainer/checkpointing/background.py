"""One piece of work at a time beside the thread that trains."""

import threading
from collections.abc import Callable
from typing import Final

_NAME: Final = "ddpjob-checkpoint"


class Background:
    """Runs work in a thread of its own and keeps the reason of a failure until somebody asks.

    The thread is no daemon: a process that ends, of an exception too, first finishes what was begun.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def start(self, work: Callable[[], str | None]) -> None:
        """Run work that returns the reason where it failed.

        Raises:
            RuntimeError: the one before has not been waited for.
        """
        if self._thread is not None:
            raise RuntimeError("the work before this one has not been waited for")

        def run() -> None:
            try:
                self._failure = work()
            except BaseException as unexpected:
                self._failure = f"{type(unexpected).__name__}: {unexpected}"
                raise

        thread = threading.Thread(target=run, name=_NAME)
        thread.start()
        # Not before: one that could not be had cannot be waited for either.
        self._thread = thread

    @property
    def idle(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._thread is None

    @property
    def failed(self) -> bool:
        """Whether work has failed that nobody has waited for."""
        return self._failure is not None

    def wait(self) -> str | None:
        """Return when the work is done, with the reason where it failed; None where there is none, too."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        return failure
