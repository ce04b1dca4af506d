"""The work queue coalesces, never has two workers process one key and never loses a request."""

import asyncio

import pytest
from clock import Clock

from ddpjob_core.engine.queue import WorkQueue


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, call_later=clock.call_later, jitter=lambda: 1.0)


class Worker:
    """Works on keys one step at a time, as the test lets it."""

    def __init__(self, queue: WorkQueue[str], workers: int = 1) -> None:
        self.begun: list[str] = []
        self.go = asyncio.Semaphore(0)
        self.tasks = [asyncio.create_task(queue.work(self.handle)) for _ in range(workers)]

    async def handle(self, key: str) -> None:
        self.begun.append(key)
        await self.go.acquire()

    async def settle(self) -> list[str]:
        for _ in range(20):
            await asyncio.sleep(0)
        return self.begun

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


async def test_a_key_added_often_is_worked_on_once(queue: WorkQueue[str]) -> None:
    for key in "aabab":
        queue.add(key)
    worker = Worker(queue)
    for _ in range(5):
        worker.go.release()
    assert await worker.settle() == ["a", "b"]
    worker.stop()


async def test_keys_that_need_nothing_do_not_hold_the_event_loop(clock: Clock) -> None:
    queue = WorkQueue[int](clock=clock, call_later=clock.call_later)
    handled = 0

    async def handle(_: int) -> None:
        nonlocal handled
        handled += 1

    for key in range(1000):
        queue.add(key)
    tasks = [asyncio.create_task(queue.work(handle)) for _ in range(8)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 8 <= handled <= 24
    for task in tasks:
        task.cancel()


async def test_namespaces_take_turns_however_many_keys_one_of_them_has(clock: Clock) -> None:
    queue = WorkQueue[str](clock=clock, call_later=clock.call_later, group=lambda key: key[0])
    for number in range(1000):
        queue.add(f"a{number}")
    worker = Worker(queue)
    for _ in range(3):
        worker.go.release()
    await worker.settle()
    queue.add("b0")
    for _ in range(3):
        worker.go.release()
    assert "b0" in (await worker.settle())[:6]
    worker.stop()


async def test_a_key_added_while_it_is_worked_on_is_worked_on_again_and_not_twice_at_once(
    queue: WorkQueue[str],
) -> None:
    worker = Worker(queue, workers=3)
    queue.add("a")
    assert await worker.settle() == ["a"]
    queue.add("a")
    queue.add("a")
    assert await worker.settle() == ["a"]
    worker.go.release()
    assert await worker.settle() == ["a", "a"]
    worker.stop()


async def test_the_earliest_delay_counts_and_work_in_between_takes_it_back(queue: WorkQueue[str], clock: Clock) -> None:
    worker = Worker(queue)
    queue.add_after("a", 5)
    queue.add_after("a", 2)
    queue.add_after("a", 9)
    clock.pass_by(1)
    assert await worker.settle() == []
    clock.pass_by(1)
    assert await worker.settle() == ["a"]
    worker.go.release()
    await worker.settle()
    clock.pass_by(20)
    assert await worker.settle() == ["a"]
    worker.stop()


async def test_failures_in_a_row_double_the_delay_up_to_a_limit_and_one_success_ends_that(
    queue: WorkQueue[str],
) -> None:
    delays = [queue.retry("a") for _ in range(10)]
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == 60.0
    assert queue.retry("b") == 0.5
    queue.succeeded("a")
    assert queue.retry("a") == 0.5


async def test_what_the_server_asks_to_wait_is_waited(queue: WorkQueue[str]) -> None:
    assert queue.retry("a", after=7.0) == 7.0


async def test_work_that_raises_is_retried_and_takes_no_worker_away(queue: WorkQueue[str], clock: Clock) -> None:
    seen: list[str] = []

    async def handle(key: str) -> None:
        seen.append(key)
        if len(seen) == 1:
            raise RuntimeError(key)

    task = asyncio.create_task(queue.work(handle))
    queue.add("a")
    queue.add("b")
    for _ in range(20):
        await asyncio.sleep(0)
    assert seen == ["a", "b"]
    clock.pass_by(1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert seen == ["a", "b", "a"]
    task.cancel()


async def test_the_queue_tells_how_long_keys_wait_and_are_worked_on(queue: WorkQueue[str], clock: Clock) -> None:
    worker = Worker(queue)
    queue.add("a")
    await worker.settle()
    queue.add("b")
    clock.pass_by(3)
    queue.add("c")
    clock.pass_by(4)
    assert (queue.depth, queue.oldest, queue.longest_running) == (2, 7.0, ("a", 7.0))
    worker.stop()


async def test_a_closed_queue_forgets_its_keys_and_takes_none(queue: WorkQueue[str], clock: Clock) -> None:
    worker = Worker(queue)
    queue.add("running")
    await worker.settle()
    queue.add("running")
    queue.add("waiting")
    queue.add_after("later", 5)
    queue.close()
    queue.add("late")
    queue.retry("failed")
    clock.pass_by(100)
    worker.go.release()
    assert await worker.settle() == ["running"]
    assert (queue.depth, queue.oldest) == (0, 0.0)
    queue.open()
    queue.add("taken")
    assert await worker.settle() == ["running", "taken"]
    worker.stop()
