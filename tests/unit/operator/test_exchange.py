"""Requests over kept connections, against servers that do what none should; on both event loops."""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ddpjob_operator import exchange as module
from ddpjob_operator.exchange import Exchange, ExchangeError, Place
from tests.certificates import self_signed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

Talk = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


@dataclass
class Peer:
    """A server that has a conversation with each connection, and knows which of them are open."""

    talk: Talk
    port: int = 0
    connections: int = 0
    asked: list[bytes] = field(default_factory=list)
    open: int = 0
    none_open: asyncio.Event = field(default_factory=asyncio.Event)
    asked_once: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.none_open.clear()
        try:
            await self.talk(self, reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.open -= 1
            if self.open == 0:
                self.none_open.set()
            writer.transport.abort()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        """The next request, which has no body."""
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        self.asked_once.set()
        return self.asked[-1]


@asynccontextmanager
async def talking(talk: Talk, *, folder: Path | None = None) -> AsyncIterator[tuple[Exchange, Peer]]:
    """An exchange with a server; TLS where there is a folder for its certificate."""
    peer = Peer(talk)
    trusted, serving = None, None
    if folder is not None:
        path, serving = self_signed(folder)
        trusted = ssl.create_default_context(cafile=str(path))
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=serving)
    peer.port = server.sockets[0].getsockname()[1]
    exchange = Exchange(Place("127.0.0.1", peer.port, trusted))
    try:
        yield exchange, peer
    finally:
        exchange.close()
        if peer.connections:
            # What is left open is seen by the server: each connection has to end.
            await asyncio.wait_for(peer.none_open.wait(), 30)
        server.close()


async def ask(exchange: Exchange, *, repeatable: bool = True, most: int = 1000) -> bytes:
    return (await exchange.ask(REQUEST, most=most, repeatable=repeatable, answering=lambda _: None)).body


async def answers(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await peer.request(reader)
        writer.write(OK)


def saying(sent: bytes, *, then: str = "wait") -> Talk:
    """A server that says this to the first request of each connection."""

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        writer.write(sent)
        if then == "close":
            writer.close()
        elif then == "abort":
            await writer.drain()
            writer.transport.abort()

    return talk


@pytest.mark.parametrize("encrypted", [False, True])
def test_one_connection_serves_one_request_after_another_and_several_at_a_time_have_their_own(
    run: Run, tmp_path: Path, *, encrypted: bool
) -> None:
    async def test() -> None:
        async with talking(answers, folder=tmp_path if encrypted else None) as (exchange, peer):
            assert [await ask(exchange) for _ in range(5)] == [b"{}"] * 5
            assert peer.connections == 1
            assert await asyncio.gather(*(ask(exchange) for _ in range(4))) == [b"{}"] * 4
            assert peer.connections == 4

    run(test())


@pytest.mark.parametrize(
    ("sent", "then"),
    [
        (b"", "close"),
        (b"", "abort"),
        (b"HTTP/1.1 20", "close"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "close"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "abort"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", "close"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "close"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "close"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", "wait"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "wait"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 1001, "wait"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "wait"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_its_connection_is_closed(
    run: Run, sent: bytes, then: str
) -> None:
    async def test() -> None:
        async with talking(saying(sent, then=then)) as (exchange, peer):
            with pytest.raises(ExchangeError):
                await ask(exchange)
            await asyncio.wait_for(peer.none_open.wait(), 30)
            # On a new connection it is not sent again.
            assert len(peer.asked) == 1

    run(test())


def test_an_answer_ends_with_its_connection_where_it_has_no_length(run: Run) -> None:
    async def test() -> None:
        async with talking(saying(b"HTTP/1.1 200 OK\r\n\r\n{}", then="close")) as (exchange, peer):
            assert [await ask(exchange), await ask(exchange)] == [b"{}"] * 2
            assert peer.connections == 2

    run(test())


def test_a_server_that_announces_the_end_of_a_connection_is_not_asked_on_it_again(run: Run) -> None:
    sent = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"

    async def test() -> None:
        async with talking(saying(sent)) as (exchange, peer):
            assert [await ask(exchange), await ask(exchange)] == [b"{}"] * 2
            assert peer.connections == 2

    run(test())


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(run: Run) -> None:
    stray = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"old":1}'

    async def test() -> None:
        said = asyncio.Event()

        async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = peer.connections == 1
            await peer.request(reader)
            writer.write(OK)
            if first:
                await said.wait()
                writer.write(stray)
            else:
                await answers(peer, reader, writer)

        async with talking(talk) as (exchange, peer):
            assert await ask(exchange) == b"{}"
            said.set()
            # The connection is closed because of it.
            await asyncio.wait_for(peer.none_open.wait(), 30)
            assert await ask(exchange) == b"{}"
            assert peer.connections == 2

        async with talking(saying(OK + stray)) as (exchange, peer):
            assert [await ask(exchange), await ask(exchange)] == [b"{}"] * 2
            assert peer.connections == 2

    run(test())


@pytest.mark.parametrize(("repeatable", "asked"), [(True, 3), (False, 2)])
def test_what_may_be_repeated_is_sent_again_once_where_the_server_had_closed_a_kept_connection(
    run: Run, *, repeatable: bool, asked: int
) -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if peer.connections == 1:
            await peer.request(reader)
            writer.write(OK)
            # As if it had closed it right before the request came.
            await peer.request(reader)
            writer.transport.abort()
        else:
            await answers(peer, reader, writer)

    async def test() -> None:
        async with talking(talk) as (exchange, peer):
            assert await ask(exchange) == b"{}"
            if repeatable:
                assert await ask(exchange) == b"{}"
            else:
                with pytest.raises(ExchangeError):
                    await ask(exchange, repeatable=False)
            assert len(peer.asked) == asked

    run(test())


def test_what_has_begun_to_be_answered_is_never_sent_again(run: Run) -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        writer.write(OK)
        await peer.request(reader)
        writer.write(b"HTTP/1.1 201 Cr")
        writer.close()

    async def test() -> None:
        async with talking(talk) as (exchange, peer):
            assert await ask(exchange) == b"{}"
            with pytest.raises(ExchangeError):
                await ask(exchange)
            assert len(peer.asked) == 2

    run(test())


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_a_request_that_is_cancelled_closes_its_connection(
    run: Run, tmp_path: Path, sent: bytes, *, encrypted: bool
) -> None:
    async def test() -> None:
        async with talking(saying(sent), folder=tmp_path if encrypted else None) as (exchange, peer):
            asking = asyncio.create_task(ask(exchange))
            await asyncio.wait_for(peer.asked_once.wait(), 30)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(peer.none_open.wait(), 30)

    run(test())


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_request_can_be_cancelled_after_any_number_of_steps_and_leaves_no_connection(
    run: Run, tmp_path: Path, *, encrypted: bool
) -> None:
    async def test() -> None:
        async with talking(answers, folder=tmp_path if encrypted else None) as (exchange, peer):
            steps, cancelled = 0, True
            while cancelled:
                # Each time on a connection of its own: the kept one would make all but the first the same.
                exchange.close()
                exchange._closed = False
                asking = asyncio.create_task(ask(exchange))
                for _ in range(steps):
                    await asyncio.sleep(0)
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asking
                cancelled = asking.cancelled()
                steps += 1
                assert len(exchange._open) == len(exchange._kept) == (0 if cancelled else 1)
            assert steps > 1
            assert await ask(exchange) == b"{}"
            del peer

    run(test())
    gc.collect()


def test_an_answer_that_comes_byte_by_byte_is_given_up_by_the_caller_s_limit(run: Run) -> None:
    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        for byte in OK * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async def test() -> None:
        async with talking(talk) as (exchange, peer):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await ask(exchange)
            await asyncio.wait_for(peer.none_open.wait(), 30)

    run(test())


def test_a_server_that_is_not_trusted_or_breaks_off_the_handshake_is_an_error(run: Run, tmp_path: Path) -> None:
    async def hang_up(_: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async def test() -> None:
        async with talking(answers, folder=tmp_path) as (_, peer):
            stranger = Exchange(Place("127.0.0.1", peer.port, ssl.create_default_context()))
            with pytest.raises(ExchangeError, match="CERTIFICATE_VERIFY_FAILED"):
                await ask(stranger)
            other = Exchange(
                Place("127.0.0.1", peer.port, ssl.create_default_context(cafile=str(tmp_path / "server.pem")), "other")
            )
            with pytest.raises(ExchangeError, match="CERTIFICATE_VERIFY_FAILED"):
                await ask(other)
            assert not stranger._open
            assert not peer.asked
        async with talking(hang_up) as (_, peer):
            trusting = Exchange(Place("127.0.0.1", peer.port, ssl.create_default_context()))
            with pytest.raises(ExchangeError):
                await ask(trusting)
            assert not trusting._open

    run(test())


def test_a_handshake_that_does_not_go_on_is_given_up_by_the_caller_s_limit(run: Run) -> None:
    async def silent(_: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read(1)

    async def test() -> None:
        async with talking(silent) as (_, peer):
            waiting = Exchange(Place("127.0.0.1", peer.port, ssl.create_default_context()))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await ask(waiting)
            await asyncio.wait_for(peer.none_open.wait(), 30)

    run(test())


def test_nobody_there_is_an_error(run: Run) -> None:
    async def test() -> None:
        for host in ("127.0.0.1", "localhost", "no-such-name.invalid"):
            with pytest.raises(ExchangeError, match=f"no connection to {host} port 1"):
                await ask(Exchange(Place(host, 1, None)))

    run(test())


def test_connections_that_are_not_used_are_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 0.05)

    async def test() -> None:
        async with talking(answers) as (exchange, peer):
            await asyncio.gather(*(ask(exchange) for _ in range(3)))
            await asyncio.wait_for(peer.none_open.wait(), 30)
            assert not exchange._kept
            assert not exchange._open
            assert await ask(exchange) == b"{}"

    run(test())


def test_after_the_end_nothing_is_sent_and_what_was_under_way_fails(run: Run) -> None:
    async def test() -> None:
        async with talking(saying(b"")) as (exchange, peer):
            asking = asyncio.create_task(ask(exchange))
            await asyncio.wait_for(peer.asked_once.wait(), 30)
            exchange.close()
            with pytest.raises(ExchangeError):
                await asking
            with pytest.raises(ExchangeError):
                await ask(exchange)
            assert len(peer.asked) == 1

    run(test())
