"""The sockets of a process group, to break them off where the group itself offers no way to end what it waits for.

gloo cannot abort a collective. A rank that waits for one that is gone hears of it if the two are connected and the
collective is between them. Otherwise it would wait for ranks that have left, or that wait themselves.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FILES: Final = Path("/proc/self/fd")
_SOCKET: Final = "socket:"


class Connections:
    """What was opened meanwhile by this process."""

    def __init__(self) -> None:
        self._opened = frozenset[tuple[int, str]]()

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Note the sockets that are opened in the body, in whatever thread."""
        before = _sockets()
        yield
        self._opened = frozenset(_sockets() - before)

    def break_off(self) -> None:
        """End the connections, as if the other sides had; may be called in any thread."""
        # A number may stand for another socket by now, which has another name.
        for number, _ in self._opened & _sockets():
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
                # gloo ends the process when its listening socket fails.
                if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    copy.shutdown(socket.SHUT_RDWR)


def _sockets() -> set[tuple[int, str]]:
    """Number and name of each socket of this process."""
    found = set[tuple[int, str]]()
    for file in _FILES.iterdir():
        with suppress(OSError):
            name = str(file.readlink())
            if name.startswith(_SOCKET):
                found.add((int(file.name), name))
    return found
