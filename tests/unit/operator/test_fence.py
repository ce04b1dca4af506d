"""The fence lets writes through only while this process leads."""

import asyncio

import pytest
from clock import Clock

from ddpjob_core.api.errors import NotLeading
from ddpjob_operator.election import Times
from ddpjob_operator.fence import Fence


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_it_is_closed_until_it_is_opened_and_again_when_the_time_is_over(clock: Clock) -> None:
    fence = Fence(clock)
    with pytest.raises(NotLeading):
        fence.check()
    fence.open(clock.now + 5)
    clock.pass_by(4.9)
    fence.check()
    # No timer has to run for that: the process may have been stopped meanwhile.
    clock.pass_by(0.1)
    with pytest.raises(NotLeading):
        fence.check()
    with pytest.raises(NotLeading):
        async with fence.writing():
            raise AssertionError("unreachable")


async def test_what_is_under_way_is_broken_off_when_it_closes(clock: Clock) -> None:
    fence = Fence(clock)
    fence.open(clock.now + 5)
    begun, broken_off = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        try:
            async with fence.writing():
                begun.set()
                await asyncio.Event().wait()
        except NotLeading:
            broken_off.set()

    writing = asyncio.create_task(write())
    await begun.wait()
    fence.close()
    fence.close()
    await asyncio.wait_for(broken_off.wait(), 30)
    await writing
    fence.open(clock.now + 5)
    async with fence.writing():
        fence.check()


async def test_a_stop_lets_writes_end_and_begins_none(clock: Clock) -> None:
    fence = Fence(clock)
    fence.open(clock.now + 5)
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write() -> None:
        async with fence.writing():
            begun.set()
            await may_end.wait()
        ended.set()

    writing = asyncio.create_task(write())
    await begun.wait()
    draining = asyncio.create_task(fence.drain(30))
    await asyncio.sleep(0)
    assert not fence.is_open
    assert not draining.done()
    may_end.set()
    await draining
    await writing
    assert ended.is_set()


async def test_a_stop_breaks_off_what_does_not_end(clock: Clock) -> None:
    fence = Fence(clock)
    fence.open(clock.now + 5)
    begun = asyncio.Event()

    async def write() -> None:
        async with fence.writing():
            begun.set()
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await begun.wait()
    await fence.drain(0.01)
    with pytest.raises(NotLeading):
        await writing


async def test_a_timeout_of_the_write_itself_stays_one(clock: Clock) -> None:
    fence = Fence(clock)
    fence.open(clock.now + 5)
    with pytest.raises(TimeoutError):
        async with fence.writing():
            raise TimeoutError


@pytest.mark.parametrize("duration", [0.1, 1, 3, 10, 60, 1e9])
def test_the_holder_stops_before_another_process_may_begin_and_renews_twice_before_that(duration: float) -> None:
    times = Times.of(duration)
    assert times.duration == round(times.duration), "a Lease holds whole seconds"
    assert times.deadline <= 0.7 * times.duration
    assert 2 * (times.renewal + times.request) < times.deadline + times.request
    assert 1 <= times.duration <= 60
