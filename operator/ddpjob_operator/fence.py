"""Lets writes through only while this process leads, and cuts off those under way when it leads no longer.

The API server does not check a Lease, so a process must stop by itself, by its own clock, before another one may take
the Lease.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from ddpjob_core.api.errors import NotLeading

_NEVER: Final = float("-inf")


class Fence:
    """Closed until it is opened, and again from the moment up to which it was opened."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Args:
        clock: seconds, which also pass while the machine sleeps.
        """
        self._clock = clock
        self._until = _NEVER
        self._writes: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        """Whether a write may be sent now."""
        return self._clock() < self._until

    def open(self, until: float) -> None:
        """Let writes through until this moment of the clock."""
        self._until = until

    def close(self) -> None:
        """Let no write through, and break off those under way."""
        self._until = _NEVER
        for write in self._writes:
            if not write.expired():
                write.reschedule(_NEVER)

    async def drain(self, seconds: float) -> None:
        """Let no new write through, wait so long for those under way, and break off the rest."""
        self._until = min(self._until, self._clock())
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        self.close()

    def check(self) -> None:
        """To be called right before a write is sent.

        Raises:
            NotLeading: the fence is closed.
        """
        if not self.is_open:
            raise NotLeading("this process does not lead: it writes nothing")

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Around a write, from before it waits for its turn until its answer has been read.

        Raises:
            NotLeading: the fence is closed, or was closed meanwhile: whether the write took effect is unknown.
        """
        self.check()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._writes.add(limit)
                self._idle.clear()
                try:
                    yield
                finally:
                    self._writes.discard(limit)
                    if not self._writes:
                        self._idle.set()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NotLeading("this process leads no longer: a write was broken off") from error
