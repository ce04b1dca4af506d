"""Ports for servers that tests start."""

import contextlib
import random
import socket

# Below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range): none of those takes a port
# between its choice here and its use.
_FIRST, _LAST = 20_000, 32_000
_CHOICE = random.SystemRandom()


def free_port() -> int:
    """A port that is free for TCP and UDP."""
    return free_ports(1)[0]


def free_ports(number: int) -> range:
    """As many ports in a row; tests that run side by side hardly ever get the same."""
    while True:
        ports = range(first := _CHOICE.randrange(_FIRST, _LAST - number), first + number)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                for port in ports:
                    held.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
            return ports
