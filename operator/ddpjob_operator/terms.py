"""What a process does while it leads, and that it does nothing of it otherwise."""

import asyncio

from ddpjob_core.engine.controller import Controller


class Terms:
    """Runs the workers of a controller during each term of this process. See `election.Leader`."""

    def __init__(self, controller: Controller, workers: int) -> None:
        """Args:
        controller: does nothing until the first term.
        workers: how many jobs are reconciled at a time.
        """
        self._controller = controller
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        controller.stand_by()

    def begin(self) -> None:
        """This process leads from now on."""
        self._controller.take_over()
        for _ in range(self._workers):
            task = asyncio.create_task(self._controller.work())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def end(self) -> None:
        """This process leads no longer: its workers are cancelled."""
        self._controller.stand_by()
        for task in self._tasks:
            task.cancel()

    async def watch_over(self) -> None:
        """Wait for a worker that fails, which is a bug.

        Raises:
            Exception: its error.
        """
        await self._failed

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)
