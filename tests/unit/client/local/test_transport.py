"""HTTP with the standard library alone: what a rank answers is read within limits, and nothing else is accepted.

What any transport has to withstand is in tests/unit/core/engine/test_poller.py.
"""

import asyncio

import pytest

from ddpjob.local.transport import open_transport
from ddpjob_core.engine.protocols import Answer


async def answer_to(sent: bytes, *, limit: int = 100) -> tuple[bytes, Answer]:
    """The request, and the answer as it is understood."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, open_transport() as transport:
        port = server.sockets[0].getsockname()[1]
        return asked, await transport.get("127.0.0.1", port, "/progress", limit=limit)


async def test_a_body_ends_with_its_length_or_with_the_connection() -> None:
    _, answer = await answer_to(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}and more")
    assert answer == Answer(200, b"{}")
    _, answer = await answer_to(b"HTTP/1.0 200 OK\r\n\r\n{}")
    assert answer == Answer(200, b"{}")


async def test_little_more_than_the_limit_is_read() -> None:
    _, answer = await answer_to(b"HTTP/1.0 200 OK\r\n\r\n" + b"a" * 100_000)
    assert len(answer.body) == 101


async def test_the_body_of_an_error_is_not_read() -> None:
    _, answer = await answer_to(b"HTTP/1.0 404 Not Found\r\nContent-Length: 1000000\r\n\r\n")
    assert answer == Answer(404, b"")


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_not_a_plain_http_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await answer_to(sent)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.0 200 OK\r\nContent-", b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}"]
)
async def test_a_connection_that_breaks_does_not_give_an_answer(sent: bytes) -> None:
    with pytest.raises(OSError, match="closed"):
        await answer_to(sent)
