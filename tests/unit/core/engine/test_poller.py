"""Endpoints are programs of others: whatever they answer costs nothing but their own job's progress."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Protocol

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.memory import JobMemory, Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.engine.protocols import OpenTransport
from ddpjob_core.engine.store import Key
from ddpjob_core.observations.observe import terminated
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.wire.progress import PollTarget, ProgressReport
from ddpjob_core.wire.rank_report import WaitReason

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = ("default", "digits")


@dataclass
class Seen:
    changed: list[Key] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    memories: Memories = field(default_factory=Memories)

    def job(self, uid: str) -> JobMemory:
        return self.memories.of(uid, KEY)

    async def outcome(self, wanted: str, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while self.outcomes.count(wanted) < times:  # noqa: ASYNC110 the poller tells by a plain call
                await asyncio.sleep(0.01)


class Polling(Protocol):
    """A poller and an endpoint that answers it."""

    def __call__(
        self, answer: Answer, *, host: str = ..., patience: float = ..., interval: float = ...
    ) -> AbstractAsyncContextManager[tuple[ProgressPoller, Seen, PollTarget]]: ...


@pytest.fixture
def polling() -> Polling:
    return partial(polling_by, open_transport)


@asynccontextmanager
async def polling_by(
    open_transport: OpenTransport,
    answer: Answer,
    *,
    host: str = "127.0.0.1",
    patience: float = 5.0,
    interval: float = 0.05,
) -> AsyncIterator[tuple[ProgressPoller, Seen, PollTarget]]:
    seen = Seen()
    poller = ProgressPoller(
        memories=seen.memories,
        changed=seen.changed.append,
        count=seen.outcomes.append,
        drop=seen.dropped.append,
        open_transport=open_transport,
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        interval=interval,
        patience=patience,
    )
    app = web.Application()
    app.add_routes([web.get("/progress", answer)])
    async with TestServer(app, host=host) as server:
        task = asyncio.create_task(poller.run())
        assert server.port is not None
        yield poller, seen, PollTarget(0, host, server.port)
        task.cancel()
        await asyncio.wait([task])


def step(number: int) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"step": number, "totalSteps": 100, "loss": 0.5})

    return answer


async def report_of(memory: JobMemory) -> ProgressReport:
    async with asyncio.timeout(10):
        while True:
            report = memory.polled.report
            if report is not None:
                return report
            await asyncio.sleep(0.01)


async def test_progress_is_read_and_kept_after_the_target_is_gone(polling: Polling) -> None:
    async with polling(step(7)) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        report = await report_of(seen.job("u1"))
        assert (report.attempt, report.progress.step, report.progress.percent) == (0, 7, 7)
        poller.follow(seen.job("u1"), ())
        assert seen.memories.followed == 0
        assert seen.job("u1").polled.report == report
        seen.memories.forget("u1")
        assert seen.job("u1").polled.report is None


async def test_it_is_known_which_target_did_not_answer_its_last_poll(polling: Polling) -> None:
    healthy = False

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"step": 1}) if healthy else web.Response(status=500)

    async with polling(answer, interval=0.02) as (poller, seen, target):
        memory = seen.job("u1")
        poller.follow(memory, (target,))
        await seen.outcome("status")
        assert memory.polled.unanswered == {target}
        healthy = True
        await seen.outcome("ok")
        assert memory.polled.unanswered == set()
        healthy = False
        await seen.outcome("status", seen.outcomes.count("status") + 2)
        poller.follow(memory, (replace(target, attempt=1),))
        assert target not in memory.polled.unanswered


async def test_a_job_that_is_followed_again_under_its_uid_is_read_no_more_often(polling: Polling) -> None:
    async with polling(step(7), interval=0.02) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        await seen.outcome("ok")
        seen.memories.forget("u1")
        poller.follow(seen.job("u1"), (target,))
        await seen.outcome("ok", seen.outcomes.count("ok") + 5)
        assert len(poller._schedule) == 1


async def test_progress_that_waits_to_be_written_is_read_once_more_shortly_before(polling: Polling) -> None:
    number = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal number
        number += 1
        return web.json_response({"step": number})

    # The regular poll may be an hour away, and is the only one that is left after each of these.
    async with polling(answer, interval=3600) as (poller, seen, target):
        poller.freshen(seen.job("unknown"), 0.3)
        poller.follow(seen.job("u1"), (target,))
        for times in (1, 2):
            poller.freshen(seen.job("u1"), 0.3)
            poller.freshen(seen.job("u1"), 60)
            await seen.outcome("ok", times)
        # What is to be written immediately is as fresh as it can be.
        poller.freshen(seen.job("u1"), 0.1)
        assert (await report_of(seen.job("u1"))).progress.step == 2


async def test_a_job_is_woken_only_when_a_shown_value_changes(polling: Polling) -> None:
    number = 1

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"step": number})

    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        await seen.outcome("ok", times=3)
        assert seen.changed == [KEY]
        number = 2
        await seen.outcome("ok", times=6)
        assert seen.changed == [KEY, KEY]


async def test_a_node_that_waits_for_node_0_is_reported_until_its_rank_answers(polling: Polling) -> None:
    told: dict[str, object] = {"waiting": {"reason": "NameNotResolved", "message": "a-0 does not\nexist yet"}}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(told)

    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (replace(target, rank=2, ordinal=1),))
        await seen.outcome("ok", times=3)
        (wait,) = seen.job("u1").polled.waits.values()
        assert (wait.ordinal, wait.reason, wait.message) == (
            1,
            WaitReason.NAME_NOT_RESOLVED,
            "a-0 does not exist yet",
        )
        assert (seen.job("u1").polled.ranks, seen.changed) == ({}, [KEY])
        told = {"step": 1}
        await seen.outcome("ok", times=len(seen.outcomes) + 2)
        assert seen.job("u1").polled.waits == {}
        assert [report.step for report in seen.job("u1").polled.ranks.values()] == [1]
        assert seen.changed == [KEY, KEY]


async def test_a_node_whose_launcher_has_stopped_answering_waits_no_more(polling: Polling) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"waiting": {"reason": "Node0NotReached", "message": "a-0:29500"}})

    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (replace(target, rank=1, ordinal=1),))
        await seen.outcome("ok")
        with socket.create_server(("127.0.0.1", 0)) as found:
            closed = replace(target, rank=1, ordinal=1, port=found.getsockname()[1])
        poller.follow(seen.job("u1"), (closed,))
        await seen.outcome("unreachable")
        assert seen.job("u1").polled.waits == {}


@pytest.mark.parametrize(
    "waiting",
    ["x", {}, {"reason": "Bored", "message": "x"}, {"reason": "NameNotResolved"}, {"reason": [], "message": "x"}],
)
async def test_a_malformed_wait_is_ignored(polling: Polling, waiting: object) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"waiting": waiting})

    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (replace(target, rank=1, ordinal=1),))
        await seen.outcome("ok", times=2)
        assert seen.job("u1").polled.waits == {}


async def test_an_ipv6_address_is_reached(polling: Polling) -> None:
    try:
        async with polling(step(3), host="::1") as (poller, seen, target):
            poller.follow(seen.job("u1"), (target,))
            assert (await report_of(seen.job("u1"))).progress.step == 3
    except OSError:
        pytest.skip("this machine has no IPv6")


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b'{"step": 1, "x": "' + b"a" * 65536)


@cache
def bomb_body() -> bytes:
    return gzip.compress(json.dumps({"step": 1, "x": "a" * 50_000_000}).encode())


async def bomb(_: web.Request) -> web.Response:
    return web.Response(body=bomb_body(), headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def redirect(request: web.Request) -> web.Response:
    raise web.HTTPFound(f"http://{request.host}/elsewhere")


async def broken(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return response


def text(body: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    return answer


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (endless, "huge"),
        (bomb, "invalid"),
        (redirect, "status"),
        (broken, "unreachable"),
        (text("not JSON"), "invalid"),
        (text("[1]"), "invalid"),
        (text("[" * 50_000), "invalid"),
        (text("x" * 70_000), "huge"),
        (text('{"step": ' + "9" * 50_000 + "}"), "invalid"),
    ],
)
async def test_a_hostile_endpoint_is_counted_and_ignored(polling: Polling, answer: Answer, outcome: str) -> None:
    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        await seen.outcome(outcome, times=2)
        assert seen.job("u1").polled.report is None
        assert seen.changed == []


async def test_values_of_a_wrong_type_count_as_missing(polling: Polling) -> None:
    answer = text('{"step": "many", "loss": 1e400, "lastStepTime": 5, "epoch": 2}')
    async with polling(answer) as (
        poller,
        seen,
        target,
    ):
        poller.follow(seen.job("u1"), (target,))
        progress = (await report_of(seen.job("u1"))).progress
        assert (progress.step, progress.loss, progress.epoch) == (None, None, 2)
        assert {"step", "loss", "lastStepTime"} == set(seen.dropped)


async def test_slow_and_dead_endpoints_do_not_delay_the_others(polling: Polling) -> None:
    never = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async with polling(slow, patience=0.2) as (poller, seen, target):
        app = web.Application()
        app.add_routes([web.get("/progress", step(9))])
        async with TestServer(app, host="127.0.0.1") as healthy:
            assert healthy.port is not None
            for number in range(20):
                poller.follow(seen.job(f"slow-{number}"), (target,))
            poller.follow(seen.job("dead"), (PollTarget(0, "127.0.0.1", 1),))
            poller.follow(seen.job("healthy"), (PollTarget(0, "127.0.0.1", healthy.port),))
            assert (await report_of(seen.job("healthy"))).progress.step == 9
            await seen.outcome("timeout")
            await seen.outcome("unreachable")


def ended_pod(ordinal: int, attempt: int, step: int) -> PodRecord:
    message = json.dumps({"exitCode": 143, "progress": {"step": step}})
    return PodRecord(
        *("n", f"j-a{attempt}-{ordinal}", "u", "1", "u1", "j"),
        attempt,
        ordinal,
        "Failed",
        trainer=terminated(143, message, reason="Error"),
    )


async def test_what_the_first_node_reports_at_its_end_is_kept_although_its_pod_is_gone(polling: Polling) -> None:
    async with polling(step(41)) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        await seen.outcome("ok")
        poller.ended(seen.job("u1"), ended_pod(1, 0, 99))
        poller.follow(seen.job("u1"), ())
        poller.ended(seen.job("u1"), ended_pod(0, 0, 48))
        kept = seen.job("u1").polled.report
        assert kept is not None
        assert kept.progress.step == 48
        poller.ended(seen.job("u1"), ended_pod(0, 1, 60))
        poller.ended(seen.job("u1"), ended_pod(0, 0, 48))
        newest = seen.job("u1").polled.report
        assert newest is not None
        assert (newest.attempt, newest.progress.step) == (1, 60)


async def test_an_answer_of_an_attempt_that_was_left_meanwhile_is_dropped(polling: Polling) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await go.wait()
        return web.json_response({"step": 1})

    async with polling(answer) as (poller, seen, target):
        poller.follow(seen.job("u1"), (target,))
        await asyncio.wait_for(asked.wait(), 10)
        poller.follow(seen.job("u1"), (PollTarget(1, "127.0.0.1", 1),))
        go.set()
        await seen.outcome("ok")
        assert seen.job("u1").polled.report is None


async def test_a_program_that_begins_to_serve_after_it_was_refused_many_times_is_read(polling: Polling) -> None:
    async with polling(step(1)) as (poller, seen, target):
        late = PollTarget(0, "127.0.0.2", target.port)
        poller.follow(seen.job("late"), (late,))
        await seen.outcome("unreachable", 5)
        assert seen.job("late").polled.unanswered == {late}
        app = web.Application()
        app.add_routes([web.get("/progress", step(9))])
        async with TestServer(app, host="127.0.0.2", port=target.port):
            assert (await report_of(seen.job("late"))).progress.step == 9
            assert seen.job("late").polled.unanswered == set()
