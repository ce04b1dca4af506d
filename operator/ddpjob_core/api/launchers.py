"""The launchers, and what each of them is: one row of `_TRAITS` says all that the operator has to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Launcher(StrEnum):
    """What starts the worker processes on each node."""

    TORCHRUN = "torchrun"
    LAUNCH = "torch.distributed.launch"
    """torchrun that also passes each process its local rank as the argument --local-rank."""
    PYTHON = "python"
    """One process per node, started by plain `python`; the program spawns more processes itself if it needs them."""
    MPIRUN = "mpirun"
    """Open MPI's mpirun on node 0, which starts the processes on all nodes; the other nodes run sshd for it."""

    @property
    def traits(self) -> "LauncherTraits":
        """What this launcher is."""
        return _TRAITS[self]


class RendezvousBackend(StrEnum):
    """How the nodes find each other."""

    C10D = "c10d"
    STATIC = "static"


class Variables(StrEnum):
    """The environment that a launcher starts from."""

    TORCHRUN = "torchrun"
    """Options of torchrun, as PET_*."""
    RANK = "rank"
    """RANK and WORLD_SIZE of the node, MASTER_* and the number of processes."""
    MASTER = "master"
    """MASTER_* and the number of processes; rank and size are the launcher's to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTraits:
    """What a launcher is.

    Attributes:
        module: of ddpjob_launcher, which runs it in the pod.
        variables: the environment that it starts from.
        restarts_in_place: the rendezvous backends with which processes that fail restart inside running pods, and with
            which the job can change its size while it trains.
        decided_by_node_0: whether the job has succeeded when node 0 has, instead of when all nodes have.
        node_0_waits: whether node 0 waits for the others to come up, instead of the others for node 0.
        uses_ssh: whether node 0 reaches the other nodes by ssh.
        takes_command: whether spec.trainer.command may be set instead of a program.
        starts_mpi: whether its processes can use the backend mpi.
    """

    module: str
    variables: Variables
    restarts_in_place: frozenset[RendezvousBackend] = frozenset()
    decided_by_node_0: bool = False
    node_0_waits: bool = False
    uses_ssh: bool = False
    takes_command: bool = True
    starts_mpi: bool = False


_TORCHRUN: Final = LauncherTraits(
    module="torchrun",
    variables=Variables.TORCHRUN,
    # Survivors of a static rendezvous look for each other under another restart count, and hang.
    restarts_in_place=frozenset({RendezvousBackend.C10D}),
)
_TRAITS: Final[Mapping[Launcher, LauncherTraits]] = MappingProxyType(
    {
        Launcher.TORCHRUN: _TORCHRUN,
        Launcher.LAUNCH: _TORCHRUN,
        Launcher.PYTHON: LauncherTraits(module="python", variables=Variables.RANK),
        Launcher.MPIRUN: LauncherTraits(
            module="mpirun",
            variables=Variables.MASTER,
            decided_by_node_0=True,
            node_0_waits=True,
            uses_ssh=True,
            takes_command=False,
            starts_mpi=True,
        ),
    }
)
