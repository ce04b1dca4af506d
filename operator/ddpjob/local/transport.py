"""HTTP to the ranks of a job on this machine, with nothing but the standard library."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from ddpjob_core.engine.protocols import Answer

_LONGEST_HEAD: Final = 16 * 1024
_CHUNK: Final = 16 * 1024


class StreamTransport:
    """A `Transport` that opens a connection for each request.

    Requests are HTTP/1.0, so that no server answers in chunks or keeps the connection open.
    """

    async def get(self, address: str, port: int, path: str, *, limit: int) -> Answer:
        """See `Transport.get`."""
        reader, writer = await asyncio.open_connection(address, port, limit=_LONGEST_HEAD)
        try:
            host = f"[{address}]" if ":" in address else address
            lines = (f"GET {path} HTTP/1.0", f"Host: {host}:{port}", "Accept: application/json", "", "")
            writer.write("\r\n".join(lines).encode("ascii"))
            status, length = _parse_head(await _head(reader))
            body = await _body(reader, length, limit) if status == HTTPStatus.OK else b""
            return Answer(status, body)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def open_transport() -> AsyncIterator[StreamTransport]:
    """A transport; there is nothing to close."""
    yield StreamTransport()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the connection was closed before the end of the headers") from error
    except asyncio.LimitOverrunError as error:
        raise ValueError("the headers are too long") from error


def _parse_head(head: bytes) -> tuple[int, int | None]:
    """Status and Content-Length, None where the body ends with the connection."""
    first, *rest = head.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not an HTTP response: {first[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if headers.get("transfer-encoding", "identity").lower() != "identity":
        raise ValueError("a chunked response to an HTTP/1.0 request")
    length = headers.get("content-length")
    return int(status[:3]), None if length is None else int(length)


async def _body(reader: asyncio.StreamReader, length: int | None, limit: int) -> bytes:
    wanted = limit + 1 if length is None else min(length, limit + 1)
    body = bytearray()
    while len(body) < wanted:
        chunk = await reader.read(min(_CHUNK, wanted - len(body)))
        if not chunk:
            if length is not None:
                raise ConnectionError(f"the connection was closed after {len(body)} of {length} bytes")
            break
        body += chunk
    return bytes(body)
