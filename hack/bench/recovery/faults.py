"""The faults, each injected at a moment that is known to the millisecond."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hack.cluster.engine import Engine
from hack.console import output_of


class Fault(StrEnum):
    """What is injected into the training."""

    PROCESS = "process"
    SPARE = "spare"
    RESTART = "restart"
    POD = "pod"
    REJOIN = "rejoin"
    SPARE_NODE = "spare-node"
    HANG = "hang"
    NODE = "node"


TITLES: Final = {
    Fault.PROCESS: "SIGKILL of one rank",
    Fault.SPARE: "the same, with a spare process",
    Fault.RESTART: "the same, where all processes start again",
    Fault.POD: "deletion of one pod",
    Fault.REJOIN: "the same, with `spec.elastic`, where the other node goes on",
    Fault.SPARE_NODE: "the same, with `spec.elastic.spareNodes: 1`",
    Fault.HANG: "SIGSTOP of one rank",
    Fault.NODE: "loss of one node",
}


_SIGNAL: Final = """
import os, sys, time
at = time.time()
os.kill(int(sys.argv[1]), int(sys.argv[2]))
print(at)
"""

OF_PROCESSES: Final = frozenset({Fault.PROCESS, Fault.SPARE, Fault.RESTART})
"""Those that leave the pods."""

OF_ELASTIC: Final = frozenset({Fault.REJOIN, Fault.SPARE_NODE})
"""Those of a job whose other node goes on."""


class FaultError(Exception):
    """The fault could not be injected."""


@dataclass(frozen=True, slots=True)
class Injector:
    """Injects the faults into the pods of a namespace."""

    kubectl: Sequence[str]
    engine: Engine
    wait: Callable[[float], None] = time.sleep

    def signal_process(self, pod: str, process: int, number: int) -> float:
        """Send a process of a pod a signal, and return when.

        Raises:
            FaultError: it was not found.
        """
        told = output_of([*self.kubectl, "exec", pod, "--", "python3", "-c", _SIGNAL, str(process), str(number)])
        if not told or not told.strip():
            raise FaultError(f"process {process} was not found in pod {pod}")
        return float(told)

    def delete_pod(self, pod: str) -> float:
        """Delete a pod as a user would, and return when.

        Raises:
            FaultError: the API server refuses.
        """
        at = time.time()
        if output_of([*self.kubectl, "delete", "pod", pod, "--wait=false"]) is None:
            raise FaultError(f"pod {pod} could not be deleted")
        return at

    def stop_node(self, node: str) -> float:
        """Freeze all processes of a node, like a machine that hangs, and return when.

        Raises:
            FaultError: the engine refuses.
        """
        at = time.time()
        if self.engine.output("pause", node) is None:
            raise FaultError(f"node {node} could not be frozen")
        return at

    def start_node(self, node: str) -> None:
        """Unfreeze a node, and wait until it is Ready."""
        self.engine.output("unpause", node)
        output_of([*self.kubectl, "wait", "--for=condition=Ready", f"node/{node}", "--timeout=180s"], timeout=200)
