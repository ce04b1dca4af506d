"""The environment of a node's agent: that of a pod, but with addresses and ports of this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_METRICS_PORT: Final = 20_000
_LONGEST: Final = 600


@dataclass(frozen=True, slots=True)
class Meeting:
    """A meeting of nodes, each of which runs one process.

    Attributes:
        backend: c10d or static.
        nodes: how many.
        port: of the store on node 0.
        name: like no other.
        folder: where the ranks leave their marks.
        seconds: for which the workers sleep.
    """

    backend: str
    nodes: int
    port: int
    name: str
    folder: Path
    seconds: float

    @property
    def program(self) -> str:
        """What each rank runs."""
        return str(Path(__file__).with_name("worker.py"))

    @property
    def arguments(self) -> list[str]:
        """What each rank is given."""
        return [str(self.folder), str(self.seconds)]

    def torchrun(self, node: int) -> dict[str, str]:
        """Torchrun's own variables, as `ddpjob_core.children.environment` sets them."""
        shared = {
            "PET_NNODES": str(self.nodes),
            "PET_NPROC_PER_NODE": "1",
            "PET_RDZV_BACKEND": self.backend,
            "PET_RDZV_ID": self.name,
            # Decides the order of the ranks, and only node 0's is connected to.
            "PET_LOCAL_ADDR": LOOPBACK if node == 0 else f"127.0.1.{node:05d}",
            "PET_MONITOR_INTERVAL": "0.1",
        }
        if self.backend == "static":
            place = {"PET_NODE_RANK": str(node), "PET_MASTER_ADDR": LOOPBACK, "PET_MASTER_PORT": str(self.port)}
            return {**shared, **place, "PET_MAX_RESTARTS": "0", "PET_RDZV_CONF": f"timeout={_LONGEST}"}
        conf = f"join_timeout={_LONGEST},read_timeout={_LONGEST},is_host={int(node == 0)},last_call_timeout=1"
        endpoint = f"{LOOPBACK}:{self.port}"
        return {**shared, "PET_MAX_RESTARTS": "3", "PET_RDZV_CONF": conf, "PET_RDZV_ENDPOINT": endpoint}

    def launcher(self, node: int) -> dict[str, str]:
        """What our launcher is given in addition."""
        return {
            "DDPJOB_NAME": self.name,
            "DDPJOB_NAMESPACE": "default",
            "DDPJOB_UID": self.name,
            "DDPJOB_ATTEMPT": "0",
            "DDPJOB_NODE_RANK": str(node),
            "DDPJOB_NODES": str(self.nodes),
            "DDPJOB_LAUNCHER": "torchrun",
            "DDPJOB_LAUNCHER_MODULE": "torchrun",
            "DDPJOB_PROGRAM_KIND": "script",
            "DDPJOB_PROGRAM": self.program,
            "DDPJOB_METRICS_PORT": str(_METRICS_PORT + node),
            "DDPJOB_GRACE_PERIOD_SECONDS": "30",
            "DDPJOB_RENDEZVOUS_HOST": LOOPBACK,
            "DDPJOB_RENDEZVOUS_PORT": str(self.port),
            "DDPJOB_RENDEZVOUS_TIMEOUT": str(_LONGEST),
            "DDPJOB_TERMINATION_LOG": str(self.folder / f"end-{node}"),
            "DDPJOB_LOCAL": "1",
        }
