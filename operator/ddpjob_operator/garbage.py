"""When garbage is collected: now and then, and not whenever so many objects were made.

Python collects after so many new objects, whatever they belong to. A template of a hundred thousand lists then costs
as long to look through as to read, and a collection of everything comes in the midst of what others wait for. Nearly
all that the operator makes is freed without a collection; only cycles, such as those of closed connections, need it.
"""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_EVERY: Final = 1.0
"""Seconds between two looks at whether there is something to collect."""
_MOST_YOUNG: Final = 5_000
"""New objects from which on they are looked through. Those that are there after a look are old."""
_MOST_OLD: Final = 200_000
"""Objects that have become old since the last full collection, from which on there is another."""
_LONGEST: Final = 600.0
"""Seconds after which there is a full collection, however few objects were made: each may hold megabytes."""


@dataclass(frozen=True, slots=True)
class Heap:
    """What has been made since it was last collected."""

    young: int
    """Objects that were made since the last collection and are still there."""
    old: int
    """Objects that have become old since the last full collection."""
    full_at: float
    """When that was, in monotonic seconds."""


def generation_to_collect(heap: Heap, now: float) -> int | None:
    """Which generation is to be collected, with all younger ones; None for nothing."""
    if heap.old > _MOST_OLD or now - heap.full_at >= _LONGEST:
        return 2
    return 1 if heap.young > _MOST_YOUNG else None


async def collect_garbage(clock: Callable[[], float]) -> None:
    """Collect until cancelled, in place of the interpreter.

    What is there already, such as what was imported, stays: no collection looks at it again meanwhile.

    Args:
        clock: monotonic seconds.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    old, full_at = 0, clock()
    try:
        while True:
            await asyncio.sleep(_EVERY)
            young = gc.get_count()[0]
            generation = generation_to_collect(Heap(young, old, full_at), clock())
            if generation == 1:
                old += young - gc.collect(1)
            elif generation is not None:
                gc.collect()
                old, full_at = 0, clock()
    finally:
        gc.enable()
        gc.unfreeze()
