"""Requests to one server over connections that are kept, with asyncio and nothing else.

With a general client, what the operator sends most takes twice the processor: one small request with one small
answer. Nothing is sent ahead of an answer, and no redirect is followed, so that no token is taken elsewhere.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from aiohappyeyeballs import start_connection

from ddpjob_core.engine.http_answer import AnswerReader, HttpAnswer

_KEPT: Final = 15.0
"""Seconds without a request after which a connection is closed: before the server, or what is in between, does it."""
_CONNECT: Final = 5.0
_NEXT_ADDRESS: Final = 0.25
"""Seconds before another address of the server is tried alongside one that has not answered yet."""
_ADDRESSES_KEPT: Final = 10.0

Addresses: TypeAlias = list[tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]]
Answering: TypeAlias = Callable[[int], None]


class ExchangeError(OSError):
    """There is no answer, or one that cannot be used; whether the request has been carried out is unknown."""


class NothingCameError(ExchangeError):
    """No answer has begun to come."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is, and how it is known to be the one that was meant."""

    host: str
    port: int
    context: ssl.SSLContext | None
    """What an encrypted connection is made with, None for one that is not encrypted."""
    name: str | None = None
    """The name that its certificate must have, None for that of the host."""


class Exchange:
    """Sends requests, as many at a time as it is asked to."""

    def __init__(self, place: Place) -> None:
        """Args:
        place: the server.
        """
        self._place = place
        self._kept: list[_Channel] = []
        """The one that was used last is the last."""
        self._open: set[_Channel] = set()
        self._addresses: tuple[float, Addresses] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, request: bytes, *, most: int, repeatable: bool, answering: Answering) -> HttpAnswer:
        """The answer to a request. The caller limits the time: a request that is cancelled closes its connection.

        Args:
            request: all of it, with its headers.
            most: bytes of the answer's body.
            repeatable: whether it may be sent again where the server has closed a kept connection meanwhile.
            answering: called with the answer's code when its headers have come.

        Raises:
            ExchangeError: there is no connection, or no whole answer.
        """
        channel = self._take()
        if channel is not None:
            try:
                return await self._ask(channel, request, most, answering)
            except NothingCameError:
                if not repeatable:
                    raise
        return await self._ask(await self._connect(), request, most, answering)

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for channel in tuple(self._open):
            channel.abort()
        self._kept.clear()

    async def _ask(self, channel: "_Channel", request: bytes, most: int, answering: Answering) -> HttpAnswer:
        try:
            answer = await channel.ask(request, most, answering)
        except BaseException:
            # An answer may still come, and would be taken for that to the next request.
            channel.abort()
            raise
        if answer.goes_on and not self._closed and not channel.is_closing:
            self._keep(channel)
        else:
            channel.abort()
        return answer

    def _take(self) -> "_Channel | None":
        """A connection that is open, the one used last: the others come to their end."""
        oldest = asyncio.get_running_loop().time() - _KEPT
        while self._kept:
            channel = self._kept.pop()
            if not channel.is_closing and channel.used_at > oldest:
                return channel
            channel.abort()
        return None

    def _keep(self, channel: "_Channel") -> None:
        loop = asyncio.get_running_loop()
        channel.used_at = loop.time()
        self._kept.append(channel)
        if self._sweep is None:
            self._sweep = loop.call_later(_KEPT, self._close_unused)

    def _close_unused(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEPT
        for channel in self._kept:
            if channel.used_at <= oldest:
                channel.abort()
        self._kept = [channel for channel in self._kept if channel.used_at > oldest]
        self._sweep = loop.call_later(_KEPT, self._close_unused) if self._kept else None

    async def _connect(self) -> "_Channel":
        if self._closed:
            raise NothingCameError("the connections have been closed")
        loop = asyncio.get_running_loop()
        place = self._place
        channel = _Channel(self._open)
        try:
            async with asyncio.timeout(_CONNECT):
                connected = await start_connection(
                    await self._resolve(), happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1
                )
        except (OSError, TimeoutError) as error:
            raise NothingCameError(f"no connection to {place.host} port {place.port}: {_said(error)}") from error
        try:
            name = (place.name or place.host.rstrip(".")) if place.context is not None else None
            await loop.create_connection(lambda: channel, sock=connected, ssl=place.context, server_hostname=name)
        except BaseException as error:
            channel.abort()
            # The loop closes it, but an unfinished handshake only after half a minute in which it waits for the other
            # side's farewell. To close it here as well could hit another one that has its number by then.
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            if isinstance(error, OSError | ValueError):
                # An error of TLS is one of these, too.
                raise NothingCameError(f"no connection to {place.host} port {place.port}: {_said(error)}") from error
            raise
        return channel

    async def _resolve(self) -> Addresses:
        loop = asyncio.get_running_loop()
        if self._addresses is not None and loop.time() < self._addresses[0]:
            return self._addresses[1]
        host, port = self._place.host, self._place.port
        try:
            # In a pod it is an address: nobody has to be asked, and no thread is needed.
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._addresses = (loop.time() + _ADDRESSES_KEPT, list(found))
        return self._addresses[1]


class _Channel(asyncio.Protocol):
    """One connection, with at most one request under way."""

    def __init__(self, opened: "set[_Channel]") -> None:
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._answering: Answering = lambda _: None
        self._begun = False
        """Whether anything of the answer has come."""
        self._aborted = False
        self.used_at = 0.0

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """Close it at once."""
        self._aborted = True
        self._opened.discard(self)
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, request: bytes, most: int, answering: Answering) -> HttpAnswer:
        """The answer to a request."""
        if self._transport is None or self._transport.is_closing():
            raise NothingCameError("the connection was closed")
        self._reader, self._begun, self._answering = AnswerReader(most), False, answering
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._reader = self._answer = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._aborted:
            self._transport.abort()
            return
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._reader is None or self._answer is None or self._answer.done():
            # Nobody has asked: what is said next could be taken for an answer.
            self.abort()
            return
        reader, self._begun = self._reader, True
        before = reader.head
        try:
            answer = reader.feed(data)
        except ValueError as error:
            self._fail(str(error))
            return
        if before is None and reader.head is not None:
            self._answering(reader.head.status)
        if answer is not None:
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._opened.discard(self)
        if self._reader is None or self._answer is None or self._answer.done():
            return
        if not self._begun:
            self._answer.set_exception(NothingCameError(f"the connection was closed: {_said(error)}"))
            return
        try:
            answer = self._reader.end() if error is None else None
        except ValueError as broken:
            self._fail(str(broken))
            return
        if answer is not None:
            self._answer.set_result(answer)
        else:
            self._fail(f"the connection was closed: {_said(error)}")

    def _fail(self, why: str) -> None:
        if self._answer is not None:
            self._answer.set_exception(ExchangeError(why))


def _said(error: BaseException | None) -> str:
    return "by the server" if error is None else repr(error)
