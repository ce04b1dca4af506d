"""Lets others use the event loop while one task reads many objects."""

import asyncio
from time import perf_counter
from typing import Final

_HELD: Final = 0.005
"""Seconds: an object as large as etcd takes is read in about as many, a small one in a hundredth of that."""


class Turns:
    """Of a task that has much to do."""

    def __init__(self) -> None:
        self._begun = perf_counter()

    async def take(self) -> None:
        """To be called after each part: others go first if the last time is some milliseconds ago."""
        if perf_counter() - self._begun >= _HELD:
            await asyncio.sleep(0)
            self._begun = perf_counter()
