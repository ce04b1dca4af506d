"""Requests of one job, so many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

LARGEST_WINDOW: Final = 48
"""Requests of one job in flight: the others' must not wait behind thousands of one job's."""


async def in_window(
    items: Sequence[T],
    carry_out: Callable[[T], Awaitable[None]],
    *,
    go_on: Callable[[], bool] = lambda: True,
    first: int = LARGEST_WINDOW,
    largest: int = LARGEST_WINDOW,
) -> None:
    """Carry out all, in order. The next one begins as soon as one has ended, whichever that is.

    Args:
        items: what is to be done.
        carry_out: does one of them.
        go_on: asked before each; once it says no, those under way end and no more begin.
        first: how many are under way at first. Each one that ends lets one more begin, up to the largest number:
            with a first of 1, their number doubles with each round trip, and one answer comes before all others.
        largest: how many are under way at most.

    Raises:
        ExceptionGroup: of what `carry_out` raised.
    """
    if not items:
        return
    left = iter(items)
    # A worker that finds nothing to do is a task all the same, and most jobs have a handful of objects.
    largest = min(largest, len(items))
    workers = 0

    def start() -> None:
        nonlocal workers
        workers += 1
        group.create_task(work())

    async def work() -> None:
        for item in left:
            if not go_on():
                return
            await carry_out(item)
            if workers < largest:
                start()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(first, largest)):
            start()
