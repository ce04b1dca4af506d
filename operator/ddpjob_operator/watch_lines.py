"""The lines of a WATCH: one event each, of which only those that show something new are parsed."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

import aiohttp

from ddpjob_core.api.answers import error_of_status
from ddpjob_core.api.errors import Unavailable
from ddpjob_core.engine.protocols import Json
from ddpjob_operator.encoding import decode_object

_HEAD: Final = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED)","object":\{"kind":"\w+","apiVersion":"[\w./]+","metadata":\{"name":"([\w.-]+)",'
    rb'"namespace":"([\w.-]+)","uid":"([\w-]+)","resourceVersion":"(\d+)"'
)
"""How the API server begins an event. One that begins otherwise is simply parsed."""
LARGEST_OBJECT: Final = 16 * 1024 * 1024
"""Bytes: far more than etcd can hold, even if JSON takes six for each. A stream that sends more without the end of a
line is broken."""

Shows: TypeAlias = Callable[[Mapping[str, object]], bool]
"""Whether a state of an object is known, by the metadata that identify it."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED or BOOKMARK, with the object as it is (a bookmark's has a resource version only)."""

    type: str
    object: Json


async def lines(content: aiohttp.StreamReader, silence: float) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends.

    Raises:
        Unavailable: nothing came for `silence` seconds, the stream broke, or a line has no end.
    """
    # Not the reader's own readline, whose limit is shorter than the largest object.
    rest = bytearray()
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await content.readany()
        except TimeoutError as error:
            raise Unavailable(f"the stream was silent for {silence:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the stream broke: {error!r}") from error
        if not chunk:
            # A last line without its end was cut off: the next watch repeats it.
            return
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > LARGEST_OBJECT:
                raise Unavailable("the stream sent a line without an end")
            continue
        *lines, tail = bytes(rest).split(b"\n")
        rest = bytearray(tail)
        for line in lines:
            if line.strip():
                yield line


def known(line: bytes, shows: Shows) -> WatchEvent | None:
    """A bookmark in place of an event that shows nothing new."""
    found = _HEAD.match(line)
    if found is None:
        return None
    name, namespace, uid, version = (part.decode() for part in found.groups())
    if not shows({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}):
        return None
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": version}})


def event(line: bytes) -> WatchEvent:
    """What a line says; the record of who has set which field is left out.

    Raises:
        Unavailable: it is not an event.
        ApiError: it is the error that the watch ends with.
    """
    try:
        raw = decode_object(line)
        kind, body = raw["type"], raw["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"the stream sent something other than an event: {line[:80]!r}") from error
    if not isinstance(body, dict):
        raise Unavailable(f"the stream sent an event without an object: {line[:80]!r}")
    if kind == "ERROR":
        code = body.get("code")
        raise error_of_status(code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR, body)
    return WatchEvent(str(kind), body)
