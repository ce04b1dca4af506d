"""Requests in a window."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.engine.window import in_window


class Server:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: dict[int, asyncio.Future[None]] = {}

    async def request(self, item: int) -> None:
        self.asked.append(item)
        self.answers[item] = asyncio.get_running_loop().create_future()
        await self.answers[item]

    async def answer(self, *items: int) -> None:
        """Answer these, and let everybody see it."""
        for item in items:
            self.answers.pop(item).set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_answer_comes_before_all_others_and_each_lets_one_more_begin_up_to_the_largest() -> None:
    server = Server()
    async with asyncio.timeout(10):
        running = asyncio.create_task(in_window(range(9), server.request, first=1, largest=4))
        await asyncio.sleep(0.01)
        assert server.asked == [0]
        await server.answer(0)
        assert server.asked == [0, 1, 2]
        await server.answer(1, 2)
        assert server.asked == [0, 1, 2, 3, 4, 5, 6]
        await server.answer(3)
        assert server.asked == [0, 1, 2, 3, 4, 5, 6, 7]
        await server.answer(4, 5, 6, 7)
        await server.answer(8)
        await running


async def test_a_slow_answer_holds_up_no_others() -> None:
    server = Server()
    async with asyncio.timeout(10):
        running = asyncio.create_task(in_window(range(5), server.request, first=2, largest=2))
        await asyncio.sleep(0.01)
        for item in (1, 2, 3):
            await server.answer(item)
        assert server.asked == [0, 1, 2, 3, 4]
        await server.answer(0, 4)
        await running


async def test_none_begins_once_they_are_not_wanted_any_more_and_those_under_way_end() -> None:
    server = Server()
    wanted = True
    async with asyncio.timeout(10):
        running = asyncio.create_task(in_window(range(5), server.request, go_on=lambda: wanted, first=2, largest=2))
        await asyncio.sleep(0.01)
        wanted = False
        await server.answer(0)
        assert not running.done()
        await server.answer(1)
        await running
    assert server.asked == [0, 1]


async def test_what_is_raised_reaches_the_caller_and_the_others_are_cancelled() -> None:
    cancelled = []

    async def carry_out(item: int) -> None:
        if item == 1:
            raise KeyError(item)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    with pytest.raises(ExceptionGroup) as raised:
        await in_window(range(2), carry_out)
    assert raised.group_contains(KeyError)
    assert cancelled == [0]


@given(items=st.integers(0, 50), first=st.integers(1, 5), largest=st.integers(1, 9))
def test_each_is_carried_out_once_in_order_with_no_more_than_the_largest_number_at_a_time(
    items: int, first: int, largest: int
) -> None:
    done: list[int] = []
    most = now = 0

    async def carry_out(item: int) -> None:
        nonlocal most, now
        done.append(item)
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    asyncio.run(in_window(range(items), carry_out, first=first, largest=largest))
    assert done == list(range(items))
    assert most <= largest


async def test_no_more_is_begun_than_there_is_to_do() -> None:
    loop = asyncio.get_running_loop()
    begun: list[object] = []

    def count(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        begun.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def nothing(_: int) -> None:
        pass

    loop.set_task_factory(count)
    try:
        await in_window(range(2), nothing)
        assert len(begun) <= 2
        begun.clear()
        await in_window((), nothing)
        assert begun == []
        await in_window(range(3), nothing, first=1, largest=2)
        assert len(begun) <= 3
    finally:
        loop.set_task_factory(None)
