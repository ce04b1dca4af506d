"""A small HTTP server inside a training process, built so that no client can disturb the training.

One daemon thread runs its own event loop. A client that sends nothing, reads nothing or sends byte by byte is
disconnected after a few seconds, and clients beyond a limit are refused.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

Route = Callable[[], tuple[str, bytes]]
"""Returns the content type and the body of a page; runs in the server's thread."""

PATIENCE_SECONDS: Final = 5.0
MOST_CLIENTS: Final = 64
_LONGEST_REQUEST: Final = 16 * 1024

_log = logging.getLogger(__name__)


class HttpServer:
    """Serves a few pages to GET and HEAD, on all interfaces, IPv4 and IPv6."""

    def __init__(
        self,
        port: int,
        routes: Mapping[str, Route],
        *,
        patience: float = PATIENCE_SECONDS,
        most_clients: int = MOST_CLIENTS,
    ) -> None:
        """Bind the port; nothing is served before `start`.

        Args:
            port: 0 selects a free one, see `port`.
            routes: path to page.
            patience: seconds that a client has to send its request and to read the response.
            most_clients: maximum number of simultaneous connections.

        Raises:
            OSError: the port is in use.
            OverflowError: the number is not a valid port.
        """
        self._socket = _listen(port)
        self._routes = dict(routes)
        self._patience = patience
        self._most_clients = most_clients
        self._clients = 0
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="ddpjob-http", daemon=True)

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Serve until `close`, or until the process ends."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve_until_closed())
        finally:
            self._loop.close()

    async def _serve_until_closed(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._socket, limit=_LONGEST_REQUEST)
        await self._closing.wait()
        server.close()
        clients = asyncio.all_tasks() - {asyncio.current_task()}
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= self._most_clients:
                async with asyncio.timeout(self._patience):
                    writer.write(await self._answer(reader))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            # A client that disconnected or was too slow does not matter here.
            pass
        finally:
            self._clients -= 1
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError:
            return _response(HTTPStatus.BAD_REQUEST)
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 method, target, version
            return _response(HTTPStatus.BAD_REQUEST)
        return self._page(words[0], words[1])

    def _page(self, method: str, target: str) -> bytes:
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, allow="GET, HEAD")
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            return _response(HTTPStatus.NOT_FOUND, with_body=method == "GET")
        try:
            kind, body = route()
        except Exception:  # noqa: BLE001 a failing page must not end the server
            _log.exception("cannot render the page %s", target)
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, with_body=method == "GET")
        return _response(HTTPStatus.OK, kind, body, with_body=method == "GET")


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    # Either this machine has no IPv6, or the port is in use, which this attempt reports.
    return socket.create_server(("", port))


def _response(
    status: HTTPStatus,
    kind: str = "text/plain; charset=utf-8",
    body: bytes | None = None,
    *,
    with_body: bool = True,
    allow: str | None = None,
) -> bytes:
    content = f"{status.value} {status.phrase}\n".encode() if body is None else body
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if allow is not None:
        head.append(f"Allow: {allow}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + (content if with_body else b"")
