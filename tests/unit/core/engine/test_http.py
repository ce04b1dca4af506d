"""HTTP with the standard library alone: what a rank answers is read within limits, and nothing else is accepted.

What any transport has to withstand is in tests/unit/core/engine/test_poller.py.
"""

import asyncio
import socket

import pytest
import uvloop

from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.protocols import Answer, Door


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
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
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


async def test_an_answer_that_comes_byte_by_byte_is_the_same_as_one_that_comes_at_once() -> None:
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in sent:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        # It stays open: the length says where the answer ends.
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, open_transport() as transport:
        port = server.sockets[0].getsockname()[1]
        answer = await transport.get("127.0.0.1", port, "/progress", limit=100)
    assert answer == Answer(200, b"{}")


async def test_a_refused_connection_is_an_error_of_its_own() -> None:
    async with open_transport() as transport:
        for port in (1, 70_000):
            with pytest.raises(ConnectionRefusedError):
                await transport.get("127.0.0.1", port, "/progress", limit=100)


async def test_a_knock_shows_at_which_addresses_something_listens_and_says_nothing_to_it() -> None:
    said: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, open_transport() as transport:
        port = server.sockets[0].getsockname()[1]
        places = [("127.0.0.1", port), ("127.0.0.1", 1), ("::1", 1), ("not an address", port), ("127.0.0.1", 70_000)]
        doors = await transport.knock([*places, ("127.0.0.1", port)])
        assert list(doors) == [Door.OPEN, *[Door.CLOSED] * 4, Door.OPEN]
        async with asyncio.timeout(10):
            while len(said) < 2:  # noqa: ASYNC110 the server's own coroutines tell by a plain list
                await asyncio.sleep(0.01)
    assert said == [b"", b""]


async def test_a_knock_at_what_neither_accepts_nor_refuses_is_silence_and_keeps_no_answer_of_the_others() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        # A full queue: what comes after it is not answered.
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)  # noqa: FBT003 the interface of sockets
            filler.connect_ex(("127.0.0.1", port))
        async with open_transport() as transport:
            doors = await transport.knock([("127.0.0.1", port), ("127.0.0.1", 1)])
        for filler in fillers:
            filler.close()
    assert list(doors) == [Door.SILENT, Door.CLOSED]


def test_it_is_the_same_on_the_event_loop_that_the_operator_runs_on() -> None:
    _, answer = uvloop.run(answer_to(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}and more"))
    assert answer == Answer(200, b"{}")
    with pytest.raises(OSError, match="closed"):
        uvloop.run(answer_to(b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}"))
    with pytest.raises(ConnectionRefusedError):
        uvloop.run(refused())


async def refused() -> None:
    async with open_transport() as transport:
        await transport.get("127.0.0.1", 1, "/progress", limit=100)
