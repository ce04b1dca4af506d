"""A limit on what is done at a time that everybody gets a fair share of."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from ddpjob_core.engine.fair import FairQueue


class FairSlots:
    """So many slots. Those who wait for one get it in turn by their path, such as namespace and verb."""

    def __init__(self, count: int) -> None:
        """Args:
        count: number of slots.
        """
        self._free = count
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def slot(self, *path: Hashable) -> AsyncIterator[None]:
        """Hold a slot while entered."""
        await self.acquire(*path)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, *path: Hashable) -> None:
        """Wait for a slot; `release` gives it back."""
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(turn, *path)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._waiting.discard(turn, *path) and not turn.cancelled():
                # It was given the slot at the same moment.
                self.release()
            raise

    def release(self) -> None:
        """Give a slot to the next one."""
        while self._waiting:
            turn = self._waiting.take()
            # One that is being cancelled may not know it yet.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
