"""The cluster's names: made absolute, and asked for without teaching a name server that they do not exist."""

# ruff: noqa: PTH123 -- a file of the kubelet

from __future__ import annotations

import contextlib
import random
import socket
import struct

DNS_PORT = 53


def absolute_name(name: str, namespace: str) -> str:
    """The name with the cluster's domain and a final dot, where the resolver's configuration names the domain.

    Torch asks for IPv6 first and alone. Where there is none, each process tries a relative name in every search domain
    and at last outside of the cluster: seconds where that server is slow or cannot be reached.
    """
    with contextlib.suppress(OSError), open("/etc/resolv.conf") as file:
        for word in file.read().split():
            if word.startswith(f"{namespace}.svc.") and name and ":" not in name:
                return f"{name}.{word.rstrip('.')}."
    return name


def name_exists(name: str) -> bool | None:
    """Whether the cluster's name server knows the absolute name; None where it does not say.

    A server remembers for up to 30 s, for all clients, that it found nothing for a name and a type of record. So this
    asks for unused types, another one each time: for any type the answer shows whether the name exists.
    """
    number, kind = random.randrange(1 << 16), random.randrange(0xF000, 0xFFFF)  # noqa: S311
    with contextlib.suppress(OSError, ValueError, struct.error):
        labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
        question = b"".join(struct.pack("!B", len(label)) + label for label in labels) + struct.pack("!BHH", 0, kind, 1)
        query = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question
        for server in _name_servers():
            code = _ask(server, query)
            if code is not None:
                # NOERROR, whatever records there are, or NXDOMAIN; any other code says nothing.
                return {0: True, 3: False}.get(code)
    return None


def _name_servers() -> list[str]:
    with open("/etc/resolv.conf") as file:
        lines = [line.split() for line in file]
    return [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1][:3]


def _ask(server: str, query: bytes) -> int | None:
    """The response code of the answer; None without an answer within a second."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(server, DNS_PORT, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as asked:
            asked.settimeout(1)
            asked.connect(found[4])
            asked.send(query)
            answer = asked.recv(4096)
        # Same number and question, and marked as a response.
        if answer[:2] == query[:2] and answer[12:].lower().startswith(query[12:].lower()) and answer[2] & 0x80:
            return answer[3] & 0x0F
    return None
