"""The few requests that the operator makes, with raw JSON.

The client's generated models are not used: parsing a pod into one costs more than the rest of a watch event.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

import aiohttp

from ddpjob_core.api.answers import error_of_answer
from ddpjob_core.api.bounded_json import list_of
from ddpjob_core.api.errors import ApiError, NotFound, Unavailable, Unexpected
from ddpjob_core.api.resources import PODS, Resource
from ddpjob_core.engine.protocols import Json
from ddpjob_operator.connection import Connection
from ddpjob_operator.encoding import decode, decode_object
from ddpjob_operator.kube_protocols import Guard, Page
from ddpjob_operator.page_size import MOST_BYTES, PageSize
from ddpjob_operator.slots import FairSlots
from ddpjob_operator.turns import Turns
from ddpjob_operator.watch_lines import LARGEST_OBJECT, Shows, WatchEvent, event, known, lines

Verb: TypeAlias = Literal["create", "get", "list", "watch", "update", "patch", "delete"]

_METHODS: Final[Mapping[Verb, str]] = {
    "create": "POST",
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_WRITES: Final = ("create", "update", "patch", "delete")
_WHOLE: Final = "application/json"
_METADATA: Final = f"{_WHOLE};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


T = TypeVar("T")


class KubeClient:
    """`Kube` over the connection of kubernetes.aio, with a limit on concurrent requests, and obeying 429."""

    def __init__(
        self,
        connection: Connection,
        *,
        count: Callable[[str, str, str], None],
        answered: Callable[[str, str, float], None] = lambda _, __, ___: None,
        in_flight: int = 50,
        timeout: float = 15.0,
        page_size: int = 500,
        guard: Guard | None = None,
    ) -> None:
        """Args:
        connection: address and credentials.
        count: called with verb, resource and code of each answer.
        answered: called with verb, resource and seconds to the first byte of each answer except those to watches.
        in_flight: maximum number of concurrent requests, not counting watches.
        timeout: seconds that a whole request may take.
        page_size: the most objects in a chunk of a LIST.
        guard: decides whether writes may be sent; None lets all through.
        """
        self._connection = connection
        self._count = count
        self._answered = answered
        self._slots = FairSlots(in_flight)
        self._timeout = timeout
        self._page_size = page_size
        self._guard = guard
        self._not_before = 0.0

    async def create(self, resource: Resource, manifest: Json, *, strict: bool = False) -> Json:
        """See `Kube.create`."""
        query = {"fieldValidation": "Strict"} if strict else {}
        return await self._request("create", resource, (manifest["metadata"]["namespace"],), query, manifest)

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """See `Kube.get`."""
        return await self._request("get", resource, (namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> Json:
        """See `Kube.find`."""
        # The API server reads a single object for this, whatever the number of the others.
        query = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._request("list", resource, (namespace,), query)
        items = answer.get("items") or []
        if not items:
            raise NotFound(f"{resource.plural} {name} not found")
        found: Json = items[0]
        return found

    async def replace(self, resource: Resource, manifest: Json) -> Json:
        """PUT an object whose metadata hold the resourceVersion that it replaces; else Conflict."""
        metadata = manifest["metadata"]
        where = (metadata["namespace"], metadata["name"])
        return await self._request("update", resource, where, {}, manifest)

    async def replace_status(self, resource: Resource, manifest: Json) -> Json:
        """See `Kube.replace_status`."""
        metadata = manifest["metadata"]
        return await self._request(
            "update", resource, (metadata["namespace"], metadata["name"], "status"), {}, manifest
        )

    async def patch(self, resource: Resource, namespace: str, name: str, change: Json) -> Json:
        """See `Kube.patch`."""
        return await self._request("patch", resource, (namespace, name), {}, change)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> Json:
        """See `Kube.delete`."""
        options: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})},
            "propagationPolicy": "Background",
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self._request("delete", resource, (namespace, name), {}, options)

    async def list_pages(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        keep: Callable[[Json], T],
        selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page[T], None]:
        """See `Kube.list_pages`."""
        query = {"labelSelector": selector} if selector else {}
        accept = _METADATA if metadata_only else _WHOLE
        size = PageSize(self._page_size)
        while True:
            asked = {**query, "limit": str(size.limit)}
            request = _Request("list", resource, namespace, resource.path(namespace), asked, accept=accept)
            # One object alone has to be read, however large it is.
            most = MOST_BYTES if size.limit > 1 else LARGEST_OBJECT
            body = await self._in_turn(request, partial(self._read, most=most))
            if body is None and size.limit == 1:
                raise Unexpected(f"{request} returned an object of more than {LARGEST_OBJECT} bytes")
            if body is None:
                size.was_too_large()
                continue
            page, following = await _page(body, keep, request)
            size.came(len(page.items), len(body))
            yield page
            if not following:
                return
            query["continue"] = following

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        since: str,
        seconds: float,
        silence: float,
        selector: str = "",
        opened: Callable[[], None] = lambda: None,
        shows: Shows = lambda _: False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `Kube.watch`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(max(1, round(seconds))),
            **({"labelSelector": selector} if selector else {}),
        }
        request = _Request("watch", resource, namespace, resource.path(namespace), query)
        try:
            async with asyncio.timeout(silence):
                response = await self._send(request, total=None)
        except TimeoutError as error:
            self._count("watch", resource.plural, "unanswered")
            raise Unavailable(f"no response to {request} for {silence:g} s") from error
        try:
            opened()
            async for line in lines(response.content, silence):
                yield known(line, shows) or event(line)
        finally:
            # Closed, not released: the rest of a watch must not be read.
            response.close()

    async def _request(
        self,
        verb: Verb,
        resource: Resource,
        where: tuple[str | None, *tuple[str, ...]],
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
    ) -> Json:
        """The answer to a request on the namespace, object and subresource that `where` names."""
        request = _Request(verb, resource, where[0], resource.path(*where), query or {}, body)
        if self._guard is None or verb not in _WRITES:
            return _object(await self._in_turn(request, self._exchange), request)
        async with self._guard.writing():
            return _object(await self._in_turn(request, self._exchange), request)

    async def _in_turn(self, request: "_Request", send: Callable[["_Request"], Awaitable[T]]) -> T:
        # Thousands of pods of one job must not delay the status of another, nor one namespace the others.
        await self._slots.acquire(request.namespace, request.verb)
        try:
            await self._obey()
            if self._guard is not None and request.verb in _WRITES:
                self._guard.check()
            return await send(request)
        finally:
            self._slots.release()

    async def _exchange(self, request: "_Request") -> bytes:
        """The body of the answer."""
        verb, plural = request.verb, request.resource.plural
        clock = asyncio.get_running_loop().time
        begun, answered = clock(), False

        def answering(code: int) -> None:
            nonlocal answered
            answered = True
            self._count(verb, plural, str(code))
            self._answered(verb, plural, clock() - begun)

        try:
            answer = await self._connection.ask(
                _METHODS[verb],
                request.address,
                request.body,
                seconds=self._timeout,
                most=LARGEST_OBJECT,
                answering=answering,
            )
        except (TimeoutError, OSError) as error:
            if answered:
                raise Unavailable(f"the response to {request} was cut off: {error!r}") from error
            self._count(verb, plural, "unanswered")
            raise Unavailable(f"no response to {request}: {error!r}") from error
        if answer.head.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._failure(answer.head.status, answer.body, answer.head.headers.get("retry-after"), request)
        return answer.body

    async def _read(self, request: "_Request", most: int) -> bytes | None:
        """The body of the answer, None where it has more than `most` bytes."""
        response = await self._send(request, total=self._timeout)
        try:
            return await _read_up_to(response, most)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the response to {request} was cut off: {error!r}") from error
        finally:
            response.release()

    async def _obey(self) -> None:
        # A wait that one request was asked for applies to all: the server counts them per client.
        loop = asyncio.get_running_loop()
        wait = self._not_before - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _send(self, request: "_Request", *, total: float | None) -> aiohttp.ClientResponse:
        """The response, which the caller releases or closes; that of an error is read and raised."""
        verb, plural = request.verb, request.resource.plural
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            response = await self._connection.request(
                _METHODS[verb],
                request.address,
                request.body,
                limits=aiohttp.ClientTimeout(total=total, sock_connect=5.0),
                accept=request.accept,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(verb, plural, "unanswered")
            raise Unavailable(f"no response to {request}: {error!r}") from error
        self._count(verb, plural, str(response.status))
        if verb != "watch":
            self._answered(verb, plural, clock() - begun)
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            try:
                body = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError):
                body = b""
            finally:
                response.release()
            raise self._failure(response.status, body, response.headers.get("Retry-After"), request)
        return response

    def _failure(self, code: int, body: bytes, retry_after: str | None, request: "_Request") -> ApiError:
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        failure = error_of_answer(code, body, headers, str(request))
        if isinstance(failure, Unavailable) and failure.after:
            self._not_before = max(self._not_before, asyncio.get_running_loop().time() + failure.after)
        return failure


@dataclass(frozen=True, slots=True)
class _Request:
    verb: Verb
    resource: Resource
    namespace: str | None
    path: str
    query: Mapping[str, str]
    body: Json | None = None
    accept: str = _WHOLE

    @property
    def address(self) -> str:
        """URL path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


async def _read_up_to(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body, None where it has more bytes than that: the rest is not read."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            response.close()
            return None
    return bytes(body)


async def _page(body: bytes, keep: Callable[[Json], T], request: _Request) -> tuple[Page[T], str]:
    """The chunk, and the token by which the next one is asked for, "" for the last one."""
    kept: list[T] = []
    metadata: Json = {}
    turns = Turns()
    try:
        for name, value in list_of(body, decode):
            if name == "metadata" and isinstance(value, dict):
                metadata = value
            elif name == "items" and isinstance(value, dict):
                kept.append(keep(value))
                await turns.take()
    except ValueError as error:
        raise Unexpected(f"the response to {request} is not a list") from error
    return Page(kept, str(metadata.get("resourceVersion", ""))), str(metadata.get("continue") or "")


def _object(body: bytes, request: _Request) -> Json:
    try:
        answer = (decode_object if request.resource is PODS else decode)(body)
    except ValueError as error:
        raise Unexpected(f"the response to {request} is not JSON") from error
    if not isinstance(answer, dict):
        raise Unexpected(f"the response to {request} is not an object")
    return answer
