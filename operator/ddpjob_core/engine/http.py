"""HTTP to the ranks of jobs, with nothing but the standard library: a general client costs several times as much."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from errno import ECONNREFUSED, EINPROGRESS
from http import HTTPStatus
from typing import Final

from ddpjob_core.engine.http_answer import read_head
from ddpjob_core.engine.protocols import Answer, Door

_LONGEST_HEAD: Final = 16 * 1024
_END_OF_HEAD: Final = b"\r\n\r\n"
_LOOKS: Final = (0.01, 0.04, 0.15, 0.3)
"""Seconds before each look at connections that are neither made nor refused yet: together the patience with them."""


class HttpTransport:
    """A `Transport` that opens a connection for each request.

    Requests are HTTP/1.0, so that no server answers in chunks or keeps the connection open.
    """

    async def get(self, address: str, port: int, path: str, *, limit: int) -> Answer:
        """See `Transport.get`."""
        loop = asyncio.get_running_loop()
        host = f"[{address}]" if ":" in address else address
        # A compressed answer could grow beyond any limit while it is unpacked.
        lines = (
            f"GET {path} HTTP/1.0",
            f"Host: {host}:{port}",
            "Accept: application/json",
            "Accept-Encoding: identity",
        )
        exchange = _Exchange(limit, loop.create_future())
        try:
            connection, _ = await loop.create_connection(lambda: exchange, address, port)
        except OverflowError as error:
            raise ConnectionRefusedError(f"{port} is not a port") from error
        try:
            connection.write("\r\n".join((*lines, "", "")).encode("ascii"))
            return await exchange.answer
        finally:
            connection.abort()

    async def knock(self, places: Sequence[tuple[str, int]]) -> Sequence[Door]:
        """See `Transport.knock`."""
        doors = [Door.CLOSED] * len(places)
        waiting: dict[int, tuple[int, socket.socket]] = {}
        try:
            for index, (address, port) in enumerate(places):
                sock, error = _begin(address, port)
                if sock is not None and error == EINPROGRESS:
                    waiting[sock.fileno()] = (index, sock)
                    continue
                doors[index] = _door(error)
                if sock is not None:
                    sock.close()
            await _look(waiting, doors)
        finally:
            for index, sock in waiting.values():
                doors[index] = Door.SILENT
                sock.close()
        return doors


@asynccontextmanager
async def open_transport() -> AsyncIterator[HttpTransport]:
    """A transport; there is nothing to close."""
    yield HttpTransport()


def _begin(address: str, port: int) -> tuple[socket.socket | None, int]:
    """A connection that is being made, and the error number of the attempt."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        # A name would be looked up, and everything would wait for that.
        socket.inet_pton(family, address)
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        # Such as too many open files: what is known of the endpoint stays.
        return None, ECONNREFUSED
    try:
        return sock, sock.connect_ex((address, port))
    except OverflowError:
        return sock, ECONNREFUSED


async def _look(waiting: dict[int, tuple[int, socket.socket]], doors: list[Door]) -> None:
    """Take out those that have been made or refused, until none is left or patience is at its end."""
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLOUT)
    for pause in _LOOKS:
        if not waiting:
            return
        # Not one wake-up for each of them: nobody waits for the answer.
        await asyncio.sleep(pause)
        for number, _ in poll.poll(0):
            index, sock = waiting.pop(number)
            poll.unregister(number)
            doors[index] = _door(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            sock.close()


def _door(error: int) -> Door:
    return Door.OPEN if error == 0 else Door.CLOSED


class _Exchange(asyncio.Protocol):
    """The answer to one request."""

    def __init__(self, limit: int, answer: "asyncio.Future[Answer]") -> None:
        self._limit = limit
        self.answer = answer
        self._received = bytearray()
        self._head: tuple[int, int | None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        self._received += data
        try:
            answer = self._read(ended=False)
        except ValueError as error:
            self.answer.set_exception(error)
            return
        if answer is not None:
            self.answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer.done():
            return
        answer = self._read(ended=True) if error is None else None
        if answer is not None:
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(
                ConnectionError(f"the connection was closed after {len(self._received)} bytes of the answer: {error}")
            )

    def _read(self, *, ended: bool) -> Answer | None:
        """The answer, None where it has not come to its end."""
        if self._head is None:
            end = self._received.find(_END_OF_HEAD)
            if (len(self._received) if end < 0 else end) > _LONGEST_HEAD:
                raise ValueError("the headers are too long")
            if end < 0:
                return None
            self._head = _parse_head(bytes(self._received[:end]))
            del self._received[: end + len(_END_OF_HEAD)]
        status, length = self._head
        if status != HTTPStatus.OK:
            return Answer(status, b"")
        wanted = self._limit + 1 if length is None else min(length, self._limit + 1)
        if len(self._received) >= wanted or (ended and length is None):
            return Answer(status, bytes(self._received[:wanted]))
        return None


def _parse_head(head: bytes) -> tuple[int, int | None]:
    """Status and Content-Length, None where the body ends with the connection."""
    read = read_head(head)
    if read.coding != "identity":
        raise ValueError("a chunked response to an HTTP/1.0 request")
    return read.status, read.length
