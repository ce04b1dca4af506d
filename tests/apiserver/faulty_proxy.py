"""A proxy between the operator and a real API server that breaks what a network or a crash would break.

It knows the operator's writes and what the operator has been shown. It can end the operator right before a write is
forwarded, or after it was and before its answer is relayed. Watch streams it can cut and silence, and it can repeat and
double what they carry, and it can answer a LIST or WATCH with an error. What the API server decides is never changed.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

from ddpjob_operator.connection import Connection

WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Write:
    """A write that the API server answered."""

    method: str
    what: str
    """Resource and name, as `pods/digits-a0-0`, and the subresource."""
    code: int

    @property
    def done(self) -> bool:
        """Whether it changed something."""
        return self.code < 300

    def __str__(self) -> str:
        return f"{self.method} {self.what}"


@dataclass
class Stream:
    """A watch that is relayed."""

    resource: str
    response: web.StreamResponse
    request: web.Request
    lines: list[bytes] = field(default_factory=list)
    muted: bool = False


class FaultyProxy:
    """Plain HTTP on localhost; the credentials are added on the way."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._runner: web.AppRunner | None = None
        self._kill: Callable[[], None] | None = None
        self._crash_at = ""
        self._left = 0
        self._answered = False
        self.port = 0
        self.writes: list[Write] = []
        """All but those of Leases."""
        self.renewals: list[Write] = []
        self.in_flight = 0
        self.shown: dict[str, dict[str, str]] = {}
        """Names and versions of the objects of each resource that is there, as last shown to the operator."""
        self.crashed = asyncio.Event()
        self.dead = False
        self.streams: list[Stream] = []
        self.opened: dict[str, int] = {}
        self.doubled: set[str] = set()
        self.gone: dict[str, str] = {}
        self.errors: dict[tuple[str, str], list[int]] = {}
        """Codes of the errors that come next, by `LIST`, `WATCH` or, within a stream, `EVENT`, and resource."""
        self.blocked: set[str] = set()
        self.open = asyncio.Event()
        self.open.set()
        """Without it a write is not forwarded."""
        self.leases_open = asyncio.Event()
        self.leases_open.set()
        """Without it no write of a Lease is forwarded."""
        self.listing = asyncio.Event()
        """Without it a LIST of pods or services is not forwarded."""
        self.listing.set()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads here."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        }
        path.write_text(json.dumps(config))
        return path

    def crash(self, kill: Callable[[], None], *, at: str, occurrence: int, answered: bool) -> None:
        """Call `kill` at a write: before it is forwarded, or after it was `answered`.

        Args:
            kill: ends the operator.
            at: a regular expression that the whole write matches, such as `POST pods/digits-a0-0`.
            occurrence: the how manieth of its kind from now it is, from 1.
            answered: whether the API server does it first.
        """
        self._kill, self._crash_at, self._left, self._answered = kill, at, occurrence, answered

    def revive(self) -> None:
        """A new operator may come; no crash is planned."""
        self.dead = False
        self._kill, self._crash_at = None, ""
        self.crashed.clear()

    def cut(self, resource: str) -> None:
        """Break every stream of a resource off in the middle of a line."""
        for stream in self._of(resource):
            if stream.request.transport is not None:
                stream.request.transport.abort()

    def mute(self, resource: str) -> None:
        """Let every stream of a resource live on without another byte."""
        for stream in self._of(resource):
            stream.muted = True

    def block(self, resource: str) -> None:
        """Cut every stream of a resource, and let no other be opened until it is taken out of `blocked`."""
        self.blocked.add(resource)
        self.cut(resource)

    async def replay(self, resource: str) -> None:
        """Send all events of the present streams again."""
        for stream in self._of(resource):
            for line in list(stream.lines):
                await stream.response.write(line)

    def _of(self, resource: str) -> list[Stream]:
        return [stream for stream in self.streams if stream.resource == resource]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.dead or request.path.rpartition("/")[2] in self.blocked:
            return self._break_off(request)
        body = json.loads(await request.read() or b"null")
        resource = request.path.rpartition("/")[2]
        if request.query.get("watch") == "true":
            code = self._next_error("WATCH", resource)
            return await self._relay(request) if code is None else _refuse(code)
        code = self._next_error("LIST", resource) if request.method == "GET" and not _reads_one(request) else None
        if code is not None:
            return _refuse(code)
        if request.method in WRITES and "/leases" in request.path:
            return await self._renew(request, body)
        self.in_flight += 1
        try:
            return await self._answer(request, body)
        finally:
            self.in_flight -= 1

    async def _renew(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """A Lease is written all the time: this is not counted as a write, and no crash is planned for it."""
        await self.leases_open.wait()
        answer = await self._forward(request, body)
        content = await answer.read()
        self.renewals.append(Write(request.method, _what(request, body), answer.status))
        if self.dead:
            return self._break_off(request)
        return web.Response(body=content, status=answer.status, headers={"Content-Type": "application/json"})

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        writing = request.method in WRITES
        what = _what(request, body) if writing else ""
        last = False
        if request.method == "GET" and request.path.endswith(("/pods", "/services")) and not _reads_one(request):
            await self.listing.wait()
        if writing:
            if re.fullmatch(self._crash_at, f"{request.method} {what}"):
                self._left -= 1
                last = self._left == 0
            await self.open.wait()
            if last and not self._answered and self._end():
                return self._break_off(request)
        answer = await self._forward(request, body)
        content = await answer.read()
        if writing:
            self.writes.append(Write(request.method, what, answer.status))
        if (last and self._answered and self._end()) or self.dead:
            return self._break_off(request)
        if not writing and answer.status == HTTPStatus.OK:
            self._show_list(request, json.loads(content))
        headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
        return web.Response(body=content, status=answer.status, headers=headers)

    def _end(self) -> bool:
        if self._kill is None:
            return False
        self.dead = True
        self._kill()
        self.crashed.set()
        return True

    def _show_list(self, request: web.Request, answer: dict[str, Any]) -> None:
        if not str(answer.get("kind", "")).endswith("List") or "items" not in answer or _reads_one(request):
            return
        items = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in answer["items"]}
        resource = request.path.rpartition("/")[2]
        before = self.shown.get(resource, {}) if "continue" in request.query else {}
        self.shown[resource] = {**before, **items}

    def _show_event(self, resource: str, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return
        event = json.loads(line)
        metadata = event["object"].get("metadata", {})
        if event["type"] == "DELETED":
            self.shown.get(resource, {}).pop(metadata["name"], None)
        elif event["type"] in ("ADDED", "MODIFIED"):
            self.shown.setdefault(resource, {})[metadata["name"]] = metadata["resourceVersion"]

    async def _forward(self, request: web.Request, body: dict[str, Any] | None) -> aiohttp.ClientResponse:
        return await self._connection.request(
            request.method, request.raw_path, body, limits=aiohttp.ClientTimeout(total=None)
        )

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        resource = request.path.rpartition("/")[2]
        self.opened[resource] = self.opened.get(resource, 0) + 1
        form = self.gone.pop(resource, None)
        if form == "answer":
            return _refuse(410)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        code = 410 if form == "event" else self._next_error("EVENT", resource)
        if code is not None:
            await response.prepare(request)
            await response.write(json.dumps({"type": "ERROR", "object": _failure(code)}).encode() + b"\n")
            return response
        stream = Stream(resource, response, request)
        self.streams.append(stream)
        answer = await self._forward(request, None)
        if answer.status != HTTPStatus.OK:
            self.streams.remove(stream)
            return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
        await response.prepare(request)
        try:
            async for line in answer.content:
                await self._pass_on(stream, line)
        except (ConnectionError, aiohttp.ClientError):
            pass
        finally:
            self.streams.remove(stream)
            answer.close()
        if stream.muted:
            # Silence does not end a stream: the client itself has to give up.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return response

    async def _pass_on(self, stream: Stream, line: bytes) -> None:
        if stream.muted:
            return
        stream.lines.append(line)
        await stream.response.write(line)
        self._show_event(stream.resource, line)
        if stream.resource in self.doubled:
            await stream.response.write(line)

    def _next_error(self, kind: str, resource: str) -> int | None:
        codes = self.errors.get((kind, resource))
        return codes.pop(0) if codes else None

    @staticmethod
    def _break_off(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _reads_one(request: web.Request) -> bool:
    """Whether it is a list of a single object, which is how one is read."""
    return request.query.get("fieldSelector", "").startswith("metadata.name=")


def _failure(code: int) -> dict[str, Any]:
    reason = HTTPStatus(code).phrase.replace(" ", "")
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": "as the test asks"}


def _refuse(code: int) -> web.Response:
    """The error with this code; 200 stands for an answer that is not JSON."""
    return web.Response(text="none") if code == HTTPStatus.OK else web.json_response(_failure(code), status=code)


def _what(request: web.Request, body: dict[str, Any]) -> str:
    what = request.path.partition("/namespaces/")[2].partition("/")[2]
    if request.method != "POST":
        return what
    named = body.get("involvedObject") or body["metadata"]
    return f"{what}/{named['name']}"
