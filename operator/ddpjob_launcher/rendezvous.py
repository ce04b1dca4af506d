"""The wait for another node: until its name exists and, where something listens there, its port answers."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Protocol

from .dns import name_exists
from .errors import LaunchError
from .log import say
from .wait_page import WaitPage

if TYPE_CHECKING:
    from .settings import Settings

# Seconds that a node waits before /progress shows it.
SHOW_AFTER = 5.0


class Page(Protocol):
    """Where a wait is shown."""

    def show(self, reason: str, message: str) -> None:
        """Show from now on why this node waits."""


def endpoint(host: str, port: int) -> str:
    """Host and port as torch reads them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def await_node_0(settings: Settings, host: str, port: int, *, connect: bool) -> None:
    """Wait until node 0's name resolves and, with `connect`, its store answers; /progress shows a long wait."""
    page = WaitPage(settings.metrics_port)
    try:
        await_node(settings, 0, host, port, connect=connect, page=page)
    finally:
        page.close()


def await_node(
    settings: Settings, ordinal: int, host: str, port: int, *, connect: bool, page: Page, begun: float | None = None
) -> None:
    """Wait until a node's name resolves and, with `connect`, its port answers.

    The `page` shows what the wait is for. The timeout counts from the moment `begun` of the monotonic clock.
    """
    begin, pause, say_at = time.monotonic() if begun is None else begun, 0.1, 2.0
    # Many nodes that wait ask less often: the server and the store are one for all.
    longest, timeout = max(1.0, settings.nodes / 100), settings.rendezvous_timeout
    # Should a server deny every name when asked for a strange type, then the usual question is put now and then.
    look_at = 60.0
    while True:
        waited, reason = time.monotonic() - begin, "NameNotResolved"
        try:
            if host.endswith(".") and waited < look_at and name_exists(host) is False:
                problem = f"{host} does not exist yet"
            else:
                look_at = waited + 60 if waited >= look_at else look_at
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                if connect:
                    socket.create_connection((host, port), timeout=5).close()
                return
        except socket.gaierror as error:
            problem = f"{host} does not resolve yet ({error.strerror})"
        except OSError as error:
            reason = "NodeNotReached" if ordinal else "Node0NotReached"
            problem = f"{host}:{port} does not answer yet ({error.strerror or error})"
        waited = time.monotonic() - begin
        if waited >= timeout:
            pod = settings.pods_of_the_job(f",ddpjob.dev/ordinal={ordinal}")
            look = "its output" if settings.local else f"its pod ({pod}), then the cluster's DNS and network policies"
            raise LaunchError(f"node {ordinal} did not come up within {timeout:g} s: {problem}. Check {look}")
        if waited >= SHOW_AFTER:
            page.show(reason, problem)
        if waited >= say_at:
            say(f"waiting for node {ordinal} for {waited:.0f} s: {problem}")
            say_at = waited + 10
        time.sleep(min(pause, max(0.0, timeout - waited)))
        pause = min(longest, pause * 2)
