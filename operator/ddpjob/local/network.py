"""Addresses and ports of nodes that share one machine.

Pods have an address each, and the same ports. Here all are reached at the loopback address, and each node has ports of
its own: further loopback addresses such as 127.0.0.2 exist on Linux alone.
"""

import socket
from dataclasses import dataclass
from typing import Final

from ddpjob.plan import PollTarget

LOOPBACK: Final = "127.0.0.1"
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Network:
    """Where the nodes of one job answer.

    Attributes:
        rendezvous_port: of the store on ordinal 0.
        metrics_port: of local rank 0 on ordinal 0; the ranks of all nodes follow one another.
        processes: training processes on each node.
        asked_metrics_port: spec.metrics.port, by which the ranks of a node are told apart.
    """

    rendezvous_port: int
    metrics_port: int
    processes: int
    asked_metrics_port: int

    def node_metrics_port(self, ordinal: int) -> int:
        """Port of a node's local rank 0."""
        return self.metrics_port + ordinal * self.processes

    def locate(self, target: PollTarget) -> tuple[str, int]:
        """Address and port of a rank that is asked for its progress."""
        local_rank = target.port - self.asked_metrics_port
        return LOOPBACK, self.node_metrics_port(target.ordinal) + local_rank


def node_address(ordinal: int) -> str:
    """What a node is known by to the others; sorts as the ordinals do, and only that of ordinal 0 is connected to.

    torchrun's c10d rendezvous gives ranks in the order of these texts, and takes the first one as MASTER_ADDR.
    """
    return LOOPBACK if ordinal == 0 else f"127.0.1.{ordinal:05d}"


def free_network(*, rendezvous_port: int, metrics_port: int, nodes: int, processes: int) -> Network:
    """Ports that are free now: those that were asked for where they are, else some behind them.

    Raises:
        OSError: no port is free.
    """
    found = _first_free(rendezvous_port, 1, ())
    metrics = _first_free(metrics_port, nodes * processes, (found,))
    return Network(found, metrics, processes, metrics_port)


def _first_free(first: int, count: int, taken: tuple[int, ...]) -> int:
    port = first
    while port + count - 1 <= _HIGHEST_PORT:
        used = next((each for each in range(port, port + count) if each in taken or not _is_free(each)), None)
        if used is None:
            return port
        port = used + 1
    raise OSError(f"no {count} ports in a row are free from {first} on")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
