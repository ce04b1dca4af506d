"""What a node that waits answers on /progress: see ddpjob_core.wire.rank_report, which reads it."""

from __future__ import annotations

import contextlib
import socket
import threading

from .report import to_json


class WaitPage:
    """Answers on /progress, where local rank 0 will, why this node waits; the port is free again after `close`."""

    def __init__(self, port: int) -> None:
        """Make a page that is served from the first `show` on, if there is a port and it can be bound."""
        self._port = port
        self._body = b"{}"
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def show(self, reason: str, message: str) -> None:
        """Answer this from now on."""
        self._body = to_json({"waiting": {"reason": reason, "message": message}})
        if self._port and self._listener is None:
            with contextlib.suppress(OSError, OverflowError):
                both = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if both else socket.AF_INET
                self._listener = socket.create_server(("", self._port), family=family, dualstack_ipv6=both)
                self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        if self._listener is not None:
            # Closing alone would leave the thread in accept, and the port bound.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()

    def _serve(self) -> None:
        while self._listener is not None:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError), client:
                client.settimeout(1)
                found = client.recv(4096).startswith(b"GET /progress ")
                body = self._body if found else b""
                head = f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Length: {len(body)}\r\n"
                client.sendall(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body)
                # The client closes first: the side that does keeps the port for a minute from a program without
                # SO_REUSEADDR.
                client.recv(1)
