"""Addresses and ports of nodes that share one machine.

Each pod has its own address, and all have the same ports. Here all nodes are reached at the loopback address, and each
has its own ports: further loopback addresses such as 127.0.0.2 exist only on Linux.
"""

import fcntl
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

LOOPBACK: Final = "127.0.0.1"
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Network:
    """Where the nodes of one job answer.

    Attributes:
        rendezvous_port: of the store on ordinal 0.
        metrics_port: of local rank 0 on ordinal 0; the ranks of all nodes follow one another.
        processes: training processes on each node.
        asked_metrics_port: spec.metrics.port, which distinguishes the ranks of a node.
    """

    rendezvous_port: int
    metrics_port: int
    processes: int
    asked_metrics_port: int

    def node_metrics_port(self, ordinal: int) -> int:
        """Port of a node's local rank 0."""
        return self.metrics_port + ordinal * self.processes

    def locate(self, ordinal: int, _: str, port: int) -> tuple[str, int]:
        """Address and port at which a rank serves its progress."""
        local_rank = port - self.asked_metrics_port
        return LOOPBACK, self.node_metrics_port(ordinal) + local_rank


def node_address(ordinal: int) -> str:
    """The address that a node gives the others; it sorts like the ordinals, and only that of ordinal 0 is connected to.

    torchrun's c10d rendezvous assigns ranks in the order of these texts, and takes the first one as MASTER_ADDR.
    """
    return LOOPBACK if ordinal == 0 else f"127.0.1.{ordinal:05d}"


def ports_folder() -> Path:
    """Where this user's runs lock ports: one folder per machine, whatever folders jobs are kept in."""
    return Path(tempfile.gettempdir()) / f"ddpjob-{os.getuid()}"


class Ports:
    """Ports that are reserved for one run, so that no other run chooses them before its programs listen.

    Each is a locked file; the end of this process unlocks it, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: of the lock files, the same for all runs.
        """
        self._folder = folder
        self._held: dict[int, TextIO] = {}

    def network(self, *, rendezvous_port: int, metrics_port: int, nodes: int, processes: int) -> Network:
        """Reserve free ports: those that were asked for if they are free, else the next ones.

        Raises:
            OSError: no port is free, or none can be reserved.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise OSError(f"{self._folder} belongs to another user: set TMPDIR to another folder")
        found = self._hold_from(rendezvous_port, 1)
        return Network(found, self._hold_from(metrics_port, nodes * processes), processes, metrics_port)

    def are_free(self) -> bool:
        """Whether no program listens at the reserved ports."""
        return all(map(_is_free, self._held))

    def release(self) -> None:
        """Release all ports."""
        while self._held:
            self._held.popitem()[1].close()

    def _hold_from(self, first: int, count: int) -> int:
        while first + count - 1 <= _HIGHEST_PORT:
            held: dict[int, TextIO] = {}
            for port in range(first, first + count):
                file = None if port in self._held else self._locked(port)
                if file is None:
                    break
                held[port] = file
                # Only once it is reserved: a check would keep a program of the run that has reserved it from listening.
                if not _is_free(port):
                    break
            else:
                self._held.update(held)
                return first
            for file in held.values():
                file.close()
            first = port + 1
        raise OSError(f"no {count} consecutive free ports up to {_HIGHEST_PORT}")

    def _locked(self, port: int) -> TextIO | None:
        file = (self._folder / f"port-{port}").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
