"""What kopf sees of the API server's answers about DDPJobs: of each job its identity alone.

A job may have a megabyte, and kopf copies what it is given. So the answers are read here, made into records, and
passed on without specs and statuses; the handler asks for the record by the job's uid.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from ddpjob_core.api.bounded_json import decode, list_of
from ddpjob_core.api.constants import PLURAL
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.resting import at_rest
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord

_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_AT_ONCE: Final = 10
"""Items of a LIST that are read before others may use the event loop."""

_log = logging.getLogger(__name__)


class JobStream:
    """Takes the records out of kopf's answers. At most one of each job is held, until the handler asks for it."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    def take(self, uid: str) -> JobRecord | None:
        """The newest record of a job that has not been taken yet."""
        return self._records.pop(uid, None)

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """The class of the responses of the session that kopf uses."""
        stream = self

        class Response(aiohttp.ClientResponse):
            async def start(self, connection: Any) -> aiohttp.ClientResponse:  # noqa: ANN401 aiohttp's own type is private
                response = await super().start(connection)
                if self._is_about_jobs() and self.url.query.get("watch") == "true":
                    self.content = _Lines(self.content, stream)  # type: ignore[assignment]
                return response

            async def json(self, **options: Any) -> Any:  # noqa: ANN401 as in the base class
                if not self._is_about_jobs() or self.url.query.get("watch") == "true":
                    return await super().json(**options)
                return await stream.listed(await self.read())

            def _is_about_jobs(self) -> bool:
                return self.status == HTTPStatus.OK and self.url.path.endswith(f"/{PLURAL}")

        return Response

    async def listed(self, body: bytes) -> Json:
        """The answer to a LIST with the identities of its items."""
        answer: Json = {"items": []}
        for name, value in list_of(body):
            if name != "items":
                answer[name] = value
                continue
            answer["items"].append(self.identity(value))
            if len(answer["items"]) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return answer

    def event(self, line: bytes) -> bytes:
        """The line of a watch with the identity of its object.

        Raises:
            ValueError: it is not an event.
        """
        event = decode(line)
        try:
            kind, raw = event["type"], event["object"]
        except (TypeError, KeyError) as error:
            raise ValueError("not an event") from error
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            event["object"] = self.identity(raw)
        return json.dumps(event).encode() + b"\n"

    def identity(self, raw: object) -> Json:
        """What is passed on of an object, whose record is kept until it is taken."""
        record = job_record(raw)
        if record is None or not isinstance(raw, dict):
            _log.warning("ignoring a DDPJob without name, namespace or uid")
            return {"metadata": {}}
        self._records[record.uid] = at_rest(record)
        metadata = raw["metadata"]
        kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
        return {"apiVersion": raw.get("apiVersion"), "kind": raw.get("kind"), "metadata": kept}


class _Lines:
    """The content of a watch's response, its lines read and passed on by the stream."""

    def __init__(self, content: aiohttp.StreamReader, stream: JobStream) -> None:
        self._content = content
        self._stream = stream

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
            for line in lines:
                if line.strip():
                    yield self._read(line)

    def _read(self, line: bytes) -> bytes:
        try:
            return self._stream.event(line)
        except ValueError as error:
            # Kopf connects again, from the last version that it has seen.
            raise aiohttp.ClientPayloadError(f"the watch sent something other than an event: {line[:80]!r}") from error
