"""The client's own part of a request: limits, waits and connections that break; no server's decisions are played."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.api.errors import ApiError, NotFound, Unavailable, Unexpected
from ddpjob_core.api.resources import PODS
from ddpjob_operator.connection import connect
from ddpjob_operator.kube import KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def talking_to(
    answer: Answer, tmp_path: Path, **settings: Any
) -> AsyncIterator[tuple[KubeClient, list[tuple[str, str, str]]]]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    counted: list[tuple[str, str, str]] = []
    async with TestServer(app, host="127.0.0.1") as server:
        config = tmp_path / "kubeconfig"
        config.write_text(
            f"""
            apiVersion: v1
            kind: Config
            clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{server.port}"}}}}]
            users: [{{name: a, user: {{token: secret}}}}]
            contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
            current-context: a
            """
        )
        connection = await connect(str(config))
        yield KubeClient(connection, count=lambda *entry: counted.append(entry), **settings), counted
        await connection.close()


async def test_after_429_no_request_is_sent_before_the_wait_is_over(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        times.append(loop.time())
        if len(times) == 1:
            return web.json_response({}, status=429, headers={"Retry-After": "1"})
        return web.json_response({"metadata": {}})

    async with talking_to(answer, tmp_path) as (kube, counted):
        with pytest.raises(Unavailable) as raised:
            await kube.get(PODS, "default", "a")
        assert raised.value.after == 1
        await asyncio.gather(*(kube.get(PODS, "default", "b") for _ in range(3)))
        # A lower bound: it holds however slow the machine is.
        assert min(times[1:]) - times[0] >= 0.99
        assert counted == [("get", "pods", "429"), *[("get", "pods", "200")] * 3]


async def test_a_storm_of_429_opens_no_more_connections_than_requests_are_allowed(tmp_path: Path) -> None:
    peers: set[Any] = set()
    refused = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal refused
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        if refused < 60:
            refused += 1
            return web.json_response({"message": "slow down"}, status=429, headers={"Retry-After": "0"})
        return web.json_response({"metadata": {}})

    async with talking_to(answer, tmp_path, in_flight=5) as (kube, counted):
        answers = await asyncio.gather(*(kube.get(PODS, "default", "a") for _ in range(60)), return_exceptions=True)
        assert all(isinstance(each, Unavailable) and each.after == 0 for each in answers)
        assert await kube.get(PODS, "default", "a") == {"metadata": {}}
    assert len(counted) == 61
    assert len(peers) <= 5


async def test_an_object_is_found_by_its_name_in_a_list_of_itself_alone(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        selector = request.query["fieldSelector"]
        asked.append((request.path, selector))
        items = [{"metadata": {"name": "a"}}] if selector == "metadata.name=a" else None
        return web.json_response({"kind": "PodList", "items": items})

    async with talking_to(answer, tmp_path) as (kube, counted):
        assert await kube.find(PODS, "default", "a") == {"metadata": {"name": "a"}}
        with pytest.raises(NotFound):
            await kube.find(PODS, "default", "b")
    path = "/api/v1/namespaces/default/pods"
    assert asked == [(path, "metadata.name=a"), (path, "metadata.name=b")]
    assert {verb for verb, _, _ in counted} == {"list"}


async def test_the_time_of_every_answer_is_reported_except_that_of_a_watch(tmp_path: Path) -> None:
    told: list[tuple[str, str, float]] = []
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.json_response({"metadata": {}}, status=404 if request.path.endswith("gone") else 200)

    async with talking_to(answer, tmp_path, answered=lambda *entry: told.append(entry)) as (kube, _):
        await kube.get(PODS, "default", "a")
        with pytest.raises(NotFound):
            await kube.get(PODS, "default", "gone")
        with suppress(ApiError):
            async for _event in kube.watch(PODS, None, since="1", seconds=1, silence=5):
                pass
    assert asked == ["GET"] * 3
    assert [(verb, resource) for verb, resource, _ in told] == [("get", "pods"), ("get", "pods")]
    assert all(seconds > 0 for _, _, seconds in told)


async def test_no_more_requests_are_in_flight_than_allowed(tmp_path: Path) -> None:
    now, most = 0, 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return web.json_response({"metadata": {}})

    async with talking_to(answer, tmp_path, in_flight=3) as (kube, _):
        await asyncio.gather(*(kube.get(PODS, "default", "a") for _ in range(12)))
        assert most == 3


async def test_an_answer_that_does_not_come_or_breaks_off_may_be_asked_for_again(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("silent"):
            await never.wait()
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with talking_to(answer, tmp_path, timeout=0.3) as (kube, counted):
        for name in ("silent", "broken"):
            with pytest.raises(Unavailable):
                await kube.get(PODS, "default", name)
        assert counted == [("get", "pods", "unanswered"), ("get", "pods", "200")]
        never.set()


async def test_a_server_that_is_not_kubernetes_is_reported_as_such(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with talking_to(answer, tmp_path) as (kube, _):
        with pytest.raises(Unexpected):
            await kube.get(PODS, "default", "a")


@pytest.mark.parametrize("line", [b"not JSON\n", b'{"type": "ADDED"}\n', b'{"type": "ADDED", "object": 5}\n', b"[]\n"])
async def test_a_stream_that_sends_nonsense_is_begun_again(tmp_path: Path, line: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=line)

    async with talking_to(answer, tmp_path) as (kube, _):
        with pytest.raises(Unavailable):
            async for _ in kube.watch(PODS, None, since="1", seconds=5, silence=5):
                pass


async def test_events_larger_than_any_buffer_and_split_anywhere_are_read_whole(tmp_path: Path) -> None:
    large = "x" * 3_000_000

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        body = (
            f'{{"type": "ADDED", "object": {{"a": "{large}"}}}}\n{{"type": "BOOKMARK", "object": {{}}}}\n{{"type": "AD'
        )
        for start in range(0, len(body), 700_001):
            await response.write(body[start : start + 700_001].encode())
        return response

    async with talking_to(answer, tmp_path) as (kube, _):
        events = [event async for event in kube.watch(PODS, None, since="1", seconds=5, silence=5)]
        assert [event.type for event in events] == ["ADDED", "BOOKMARK"]
        assert events[0].object == {"a": large}


async def test_watches_of_many_namespaces_leave_connections_for_requests(tmp_path: Path) -> None:
    many, opened = 130, 0
    all_open = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal opened
        if "watch" not in request.query:
            return web.json_response({"metadata": {"name": "a"}})
        opened += 1
        if opened == many:
            all_open.set()
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with talking_to(answer, tmp_path) as (kube, _):

        async def watch(namespace: str) -> None:
            async for _ in kube.watch(PODS, namespace, since="1", seconds=60, silence=60):
                pass

        watches = [asyncio.create_task(watch(f"team-{number}")) for number in range(many)]
        try:
            await asyncio.wait_for(all_open.wait(), 30)
            assert (await asyncio.wait_for(kube.get(PODS, "team-0", "a"), 30))["metadata"]["name"] == "a"
        finally:
            for each in watches:
                each.cancel()
            await asyncio.wait(watches)


def event(kind: str, *, name: str = "a", version: str = "7", **metadata: object) -> dict[str, Any]:
    """As the API server writes it: in the order of the fields of its types."""
    identity = {"name": name, **metadata, "namespace": "team", "uid": "u-1", "resourceVersion": version}
    return {
        "type": kind,
        "object": {"kind": "Pod", "apiVersion": "v1", "metadata": identity, "spec": {"nodeName": "n"}},
    }


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (event("ADDED"), ("BOOKMARK", {"metadata": {"resourceVersion": "7"}})),
        (event("MODIFIED"), ("BOOKMARK", {"metadata": {"resourceVersion": "7"}})),
        # The end of an object is news, and so is another version, another name or what begins in another way.
        (event("DELETED"), None),
        (event("ADDED", version="8"), None),
        (event("ADDED", name="b"), None),
        (event("ADDED", generateName="a-"), None),
        ({"object": event("ADDED")["object"], "type": "ADDED"}, None),
    ],
)
async def test_a_state_that_is_known_is_not_parsed_again(
    tmp_path: Path, sent: dict[str, Any], seen: tuple[str, dict[str, Any]] | None
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=json.dumps(sent, separators=(",", ":")).encode() + b"\n")

    known = {"name": "a", "namespace": "team", "uid": "u-1", "resourceVersion": "7"}
    async with talking_to(answer, tmp_path) as (kube, _):
        watch = kube.watch(PODS, None, since="1", seconds=1, silence=5, shows=lambda metadata: metadata == known)
        events = [(event.type, event.object) async for event in watch]
    assert events == [seen or (sent["type"], sent["object"])]


@dataclass
class Objects:
    """Plays the chunks of a LIST of objects of these sizes: no decision of a server's, only its arithmetic."""

    sizes: Sequence[int]
    limits: list[int] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        begun, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        self.limits.append(limit)
        end = min(begun + limit, len(self.sizes))
        items = [{"metadata": {"name": f"o{number}"}, "text": "x" * self.sizes[number]} for number in range(begun, end)]
        following = {"continue": str(end)} if end < len(self.sizes) else {}
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "7", **following}, "items": items})

    async def listed(self, tmp_path: Path) -> list[str]:
        async with talking_to(self.answer, tmp_path) as (kube, _):
            pages = kube.list_pages(PODS, None, keep=lambda raw: str(raw["metadata"]["name"]))
            return [name async for page in pages for name in page.items]


@pytest.mark.parametrize(
    "sizes",
    [[100] * 1_200, [300_000] * 60, [100] * 600 + [300_000] * 60 + [100] * 600, [10_000_000] * 2, []],
    ids=["small", "large", "mixed", "huge", "none"],
)
async def test_a_list_has_each_object_once_and_no_chunk_of_more_than_it_may_read(
    tmp_path: Path, sizes: list[int]
) -> None:
    objects = Objects(sizes)
    assert await objects.listed(tmp_path) == [f"o{number}" for number in range(len(sizes))]


async def test_thousands_of_small_objects_take_few_chunks(tmp_path: Path) -> None:
    objects = Objects([100] * 5_000)
    await objects.listed(tmp_path)
    assert len(objects.limits) <= 12
    assert max(objects.limits) == 500


async def test_a_single_object_that_is_larger_than_any_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unexpected, match="an object of more than"):
        await Objects([17 * 2**20]).listed(tmp_path)
