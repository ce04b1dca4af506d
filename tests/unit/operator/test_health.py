"""The health endpoint says in a sentence what is wrong."""

import asyncio

from ddpjob_core.engine.queue import WorkQueue
from ddpjob_core.engine.store import Key
from ddpjob_operator.health import LoopMeter, queue_moves, watch_is_answered, watch_moves


def test_a_silent_watch_is_named_with_its_silence() -> None:
    assert watch_is_answered("pods", lambda: 90.0, 90.0)() is None
    said = watch_is_answered("pods", lambda: 91.0, 90.0)()
    assert said == "the watch of pods has been silent for 91 s (limit 90 s)"


def test_a_watch_that_no_longer_tries_is_named() -> None:
    assert watch_moves("pods", lambda: 90.0, 90.0)() is None
    said = watch_moves("pods", lambda: 91.0, 90.0)()
    assert said == "the watch of pods has done nothing for 91 s (limit 90 s)"


async def test_a_queue_whose_work_does_not_end_is_stuck() -> None:
    now = 0.0
    queue: WorkQueue[Key] = WorkQueue(clock=lambda: now, call_later=asyncio.get_running_loop().call_later)
    check = queue_moves(queue, 60.0)
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang(_: Key) -> None:
        begun.set()
        await never.wait()

    worker = asyncio.create_task(queue.work(hang))
    queue.add(("default", "digits"))
    await begun.wait()
    assert check() is None
    now = 61.0
    assert check() == "job default/digits has been reconciled for 61 s (limit 60 s)"
    queue.add(("default", "other"))
    now = 122.0
    assert check() == "the oldest of 1 waiting jobs has waited for 61 s (limit 60 s)"
    worker.cancel()


async def test_an_event_loop_that_was_blocked_is_reported() -> None:
    times = iter([0.0, 13.5])
    measured = asyncio.Event()

    def clock() -> float:
        moment = next(times, None)
        if moment is None:
            measured.set()
            return 0.0
        return moment

    meter = LoopMeter(clock=clock)
    task = asyncio.create_task(meter.run())
    await asyncio.wait_for(measured.wait(), 30)
    task.cancel()
    assert meter.check() == "the event loop was late by 12.5 s (limit 10 s)"
