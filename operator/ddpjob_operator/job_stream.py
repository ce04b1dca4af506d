"""What kopf sees of the API server's answers about DDPJobs: of each job its identity alone.

A job may have a megabyte, and kopf copies what it is given. So the answers are read here, made into records, and
passed on without specs and statuses; the handler asks for the record by the job's uid.

Kopf ends the process on most errors that answer a LIST or WATCH, and on all that come in a stream but one: that the
version to watch from is too old. It is shown that one instead, or a broken stream, after a pause.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, ClassVar, Final, Protocol

import aiohttp

from ddpjob_core.api.answers import error_of_answer
from ddpjob_core.api.bounded_json import list_of
from ddpjob_core.api.constants import PLURAL
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.resting import JobStore, RestingJob, at_rest
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.encoding import decode, encode
from ddpjob_operator.turns import Turns

_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_DOUBTED_AFTER: Final = 3
"""Consecutive failures of a watch after which all is listed again, as the informers do."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
_TOO_OLD: Final = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n'
"""Makes kopf list again."""
_RETRIED_BY_KOPF: Final = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS))
REFUSALS: Final = frozenset((HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND))
"""The API server does not show the jobs of a namespace, perhaps for long."""


class WatchError(ValueError):
    """A stream brought something other than an event; the text says what."""


class OnRefusal(Protocol):
    """Called where a LIST or WATCH of jobs was refused."""

    def __call__(self, path: str, code: int, why: str, *, watching: bool) -> None:
        """Args: URL path of the request, the answer's HTTP code, what the API server said, whether it was a WATCH."""


_log = logging.getLogger(__name__)


class JobStream:
    """Takes the records out of kopf's answers. At most one of each job is held, until the handler asks for it."""

    def __init__(
        self,
        on_refusal: OnRefusal | None = None,
        longest_refusal: float = _LONGEST_PAUSE,
        *,
        cached: Store[JobRecord] | None = None,
    ) -> None:
        """Args:
        on_refusal: told of each LIST and WATCH that the API server refuses.
        longest_refusal: seconds between two tries of what it refuses to show.
        cached: the jobs as far as they are known: what shows nothing new of one is not read again.
        """
        self._cached = cached if cached is not None else JobStore()
        self._records: dict[str, JobRecord] = {}
        self._on_refusal = on_refusal
        self._longest_refusal = longest_refusal
        self._failures: Counter[str] = Counter()
        """Of each path, one for each namespace: one that cannot be watched slows no other down."""
        self._refusals: Counter[str] = Counter()
        """Those among them that may last for long."""

    def take(self, uid: str) -> JobRecord | None:
        """The newest record of a job that has not been taken yet."""
        return self._records.pop(uid, None)

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """The class of the responses of the session that kopf uses."""
        return type("Response", (_Response,), {"stream": self})

    async def listed(self, body: bytes) -> Json:
        """The answer to a LIST with the identities of its items."""
        answer: Json = {"items": []}
        turns = Turns()
        for name, value in list_of(body, decode):
            if name != "items":
                answer[name] = value
                continue
            answer["items"].append(self.identity(value))
            await turns.take()
        return answer

    def event(self, line: bytes, path: str = "") -> bytes:
        """The line of a watch on this URL path with the identity of its object, or a bookmark if it shows nothing new.

        Raises:
            WatchError: it is not an event, or an error other than that the version to watch from is too old.
        """
        try:
            event = decode(line)
            kind, raw = event["type"], event["object"]
        except (ValueError, TypeError, KeyError) as error:
            raise WatchError(f"the watch sent something other than an event: {line[:80]!r}") from error
        if kind in ("ADDED", "MODIFIED") and self._is_known(raw):
            # Kopf takes longer for an event than the rest of the operator, and only has to know from where to go on.
            version = raw["metadata"]["resourceVersion"]
            event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
        elif kind in ("ADDED", "MODIFIED", "DELETED"):
            event["object"] = self.identity(raw)
        elif kind == "ERROR" and not (isinstance(raw, dict) and raw.get("code") == HTTPStatus.GONE):
            raise WatchError(f"the watch sent an error: {line[:400].decode(errors='replace')}")
        if kind != "ERROR":
            self.worked(path)
        return encode(event) + b"\n"

    async def failed(self, path: str, why: str) -> bool:
        """Wait before the next try, the longer the more have failed; whether all is to be listed again.

        Args:
            path: URL path that was asked.
            why: what happened.
        """
        _log.warning("restarting the watch of ddpjobs: %s", why)
        self._failures[path] += 1
        await _pause(self._failures[path], _LONGEST_PAUSE)
        return self._failures[path] >= _DOUBTED_AFTER

    async def refused(self, path: str, code: int, body: bytes, *, watching: bool) -> str:
        """As `failed`, for an answer with an error code; what the API server said."""
        why = str(error_of_answer(code, body, {}, f"{'watch' if watching else 'list'} {path}"))
        if self._on_refusal is not None:
            self._on_refusal(path, code, why, watching=watching)
        if code in REFUSALS:
            self._refusals[path] += 1
            await _pause(self._refusals[path], self._longest_refusal)
        else:
            await self.failed(path, why)
        return why

    def worked(self, path: str) -> None:
        """A stream of this path has brought an event: the next failure is the first."""
        self._failures.pop(path, None)
        self._refusals.pop(path, None)

    def identity(self, raw: object) -> Json:
        """What is passed on of an object, whose record is kept until it is taken."""
        metadata = raw.get("metadata") if isinstance(raw, dict) else None
        if self._is_known(raw):
            return _identity(raw)
        record = job_record(raw, self._earlier(metadata) if isinstance(metadata, dict) else None)
        if record is None:
            _log.warning("ignoring a DDPJob without name, namespace or uid")
            return {"metadata": {}}
        self._records[record.uid] = at_rest(record)
        return _identity(raw)

    def _is_known(self, raw: object) -> bool:
        """Whether it shows nothing new, as most events do: what the answer to a write of ours has shown before."""
        metadata = raw.get("metadata") if isinstance(raw, dict) else None
        return isinstance(metadata, dict) and self._cached.shows(metadata)

    def _earlier(self, metadata: Json) -> JobRecord | None:
        uid, namespace, name = (metadata.get(key) for key in ("uid", "namespace", "name"))
        if not (isinstance(uid, str) and isinstance(namespace, str) and isinstance(name, str)):
            return None
        read = self._records.get(uid)
        if read is None:
            return self._cached.get(namespace, name)
        return read.awake() if isinstance(read, RestingJob) else read


def _identity(raw: Any) -> Json:  # noqa: ANN401 a DDPJob that has metadata
    metadata = raw["metadata"]
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    return {"apiVersion": raw.get("apiVersion"), "kind": raw.get("kind"), "metadata": kept}


class _Response(aiohttp.ClientResponse):
    """An answer to a request of kopf's; `code` is that of the API server, whatever kopf is shown."""

    stream: ClassVar[JobStream]
    code: int | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:  # noqa: ANN401 aiohttp's own type is private
        response = await super().start(connection)
        self.code = self.status
        if self._is_about_jobs():
            if self.status == HTTPStatus.OK:
                if self._is_watch():
                    self.content = _Lines(self.content, self.stream, self.url.path)  # type: ignore[assignment]
            elif not _is_retried_by_kopf(self.status):
                await self._refuse()
        return response

    async def _refuse(self) -> None:
        watching = self._is_watch()
        why = await self.stream.refused(self.url.path, self.status, await self.read(), watching=watching)
        if not watching:
            raise aiohttp.ClientPayloadError(why)
        self.status = HTTPStatus.OK
        self.content = _Refused(self.content, self.stream, self.url.path)  # type: ignore[assignment]

    async def json(self, **options: Any) -> Any:  # noqa: ANN401 as in the base class
        if not self._is_about_jobs() or self._is_watch() or self.status != HTTPStatus.OK:
            return await super().json(**options)
        body = await self.read()
        try:
            return await self.stream.listed(body)
        except ValueError as error:
            why = f"the list of jobs is not JSON: {body[:80]!r}"
            await self.stream.failed(self.url.path, why)
            raise aiohttp.ClientPayloadError(why) from error

    def _is_about_jobs(self) -> bool:
        return self.url.path.endswith(f"/{PLURAL}")

    def _is_watch(self) -> bool:
        return self.url.query.get("watch") == "true"


class _Lines:
    """The content of a watch's response, its lines read and passed on by the stream."""

    def __init__(self, content: aiohttp.StreamReader, stream: JobStream, path: str) -> None:
        self._content = content
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 whatever else a reader has
        return getattr(self._content, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for chunk in self._content.iter_any():
            rest += chunk
            if b"\n" not in chunk:
                continue
            *lines, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in filter(bytes.strip, lines):
                try:
                    event = self._stream.event(line, self._path)
                except WatchError as failure:
                    if await self._stream.failed(self._path, str(failure)):
                        yield _TOO_OLD
                        return
                    # Kopf connects again, from the last version that it has seen.
                    raise aiohttp.ClientPayloadError(str(failure)) from failure
                yield event


class _Refused(_Lines):
    """The content that kopf is shown of a watch that was refused."""

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        yield _TOO_OLD


async def _pause(failures: int, longest: float) -> None:
    await asyncio.sleep(min(_FIRST_PAUSE * 2.0 ** min(failures - 1, 16), longest))


def _is_retried_by_kopf(status: int) -> bool:
    return status in _RETRIED_BY_KOPF or status >= HTTPStatus.INTERNAL_SERVER_ERROR
