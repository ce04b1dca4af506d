"""Requests wait for each other in turn."""

import asyncio

import pytest

from ddpjob_operator.slots import FairSlots


class Requests:
    """Requests that end when the test says so."""

    def __init__(self, slots: FairSlots) -> None:
        self._slots = slots
        self.begun: list[str] = []
        self._go = asyncio.Semaphore(0)

    def begin(self, namespace: str, verb: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._one(namespace, verb))

    async def settle(self, ends: int = 0) -> list[str]:
        for _ in range(ends):
            self._go.release()
        for _ in range(20):
            await asyncio.sleep(0)
        return self.begun

    async def _one(self, namespace: str, verb: str) -> None:
        async with self._slots.slot(namespace, verb):
            self.begun.append(f"{namespace} {verb}")
            await self._go.acquire()


@pytest.fixture
async def requests() -> Requests:
    return Requests(FairSlots(2))


async def test_a_status_and_another_namespace_do_not_wait_behind_hundreds_of_pods(requests: Requests) -> None:
    tasks = [requests.begin("big", "create") for _ in range(300)]
    await requests.settle()
    tasks += [requests.begin("big", "update"), requests.begin("small", "create")]
    assert sorted((await requests.settle(ends=4))[2:]) == [
        "big create",
        "big create",
        "big update",
        "small create",
    ]
    await requests.settle(ends=300)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)


async def test_one_that_is_cancelled_keeps_no_slot(requests: Requests) -> None:
    first = [requests.begin("a", "create") for _ in range(2)]
    waiting = [requests.begin("a", "create") for _ in range(3)]
    await requests.settle()
    waiting[0].cancel()
    await requests.settle()
    first[0].cancel()
    waiting[1].cancel()
    assert len(await requests.settle()) == 3
    for task in (*first, *waiting):
        task.cancel()
    await asyncio.wait([*first, *waiting])
    requests.begun.clear()
    for _ in range(3):
        requests.begin("b", "get")
    assert len(await requests.settle()) == 2
    await requests.settle(ends=3)


async def test_all_that_are_cancelled_at_once_end_so_and_keep_no_slot(requests: Requests) -> None:
    tasks = [requests.begin("a", "create") for _ in range(6)]
    await requests.settle()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    again = [requests.begin("b", "create") for _ in range(3)]
    assert (await requests.settle())[2:] == ["b create"] * 2
    await requests.settle(ends=3)
    await asyncio.wait_for(asyncio.gather(*again), 10)
