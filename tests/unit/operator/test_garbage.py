"""When the operator collects garbage."""

import asyncio
import gc
import itertools
import weakref

import pytest

from ddpjob_operator import garbage
from ddpjob_operator.garbage import Heap, collect_garbage, generation_to_collect


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(
    ("heap", "now", "generation"),
    [
        (Heap(young=0, old=0, full_at=0.0), 1.0, None),
        (Heap(young=5_000, old=0, full_at=0.0), 1.0, None),
        (Heap(young=5_001, old=0, full_at=0.0), 1.0, 1),
        (Heap(young=5_001, old=200_000, full_at=0.0), 1.0, 1),
        (Heap(young=0, old=200_001, full_at=0.0), 1.0, 2),
        (Heap(young=0, old=0, full_at=7.0), 606.9, None),
        # However few are new: a single one may hold megabytes.
        (Heap(young=0, old=0, full_at=7.0), 607.0, 2),
    ],
)
def test_the_new_objects_are_looked_through_once_they_are_many_and_all_seldom(
    heap: Heap, now: float, generation: int | None
) -> None:
    assert generation_to_collect(heap, now) == generation


@pytest.mark.parametrize(("young", "seconds"), [(0, 1_000.0), (10**9, 0.0)], ids=["young", "old"])
async def test_cycles_are_collected_although_the_interpreter_collects_nothing(
    young: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_EVERY", 0.001)
    monkeypatch.setattr(garbage, "_MOST_YOUNG", young)
    monkeypatch.setattr(garbage, "_MOST_OLD", 10**9 if young == 0 else -1)
    clock = itertools.count(0.0, seconds or 1.0)
    collecting = asyncio.create_task(collect_garbage(clock.__next__))
    await asyncio.sleep(0.01)
    assert not gc.isenabled()
    garbage_cycle = weakref.ref(Cycle())
    async with asyncio.timeout(10):
        while garbage_cycle() is not None:
            kept = [[] for _ in range(100)]  # Something new, in each round.
            await asyncio.sleep(0.002)
    assert kept
    collecting.cancel()
    await asyncio.wait([collecting])
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
