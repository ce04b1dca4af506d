"""What a process learns from whatever started it, parsed once.

Every launcher tells a process its place in the training in another way. `parse_environment` is the only code here that
reads those variables; everything else is given the frozen `Environment` that it returns.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HIGHEST_PORT: Final = 65535
DEFAULT_MASTER_PORT: Final = 29500
LOCAL_RANK_OPTIONS: Final = ("--local-rank", "--local_rank")
_STEP_SIZES: Final = {"SLURM_STEP_NUM_TASKS": "srun", "PMI_SIZE": "MPICH's mpirun"}
"""How many processes a launcher has started that gives none of them a place that is read here.

Not SLURM_NTASKS: a batch script has it too, which is one process.
"""


class MisuseError(ValueError):
    """The process was started in a way that cannot work; the message says what to change."""


class Launcher(StrEnum):
    """What started the process."""

    TORCHRUN = "torchrun"
    LAUNCH = "torch.distributed.launch"
    MPIRUN = "mpirun"
    PYTHON = "python"
    """Plain python with RANK and WORLD_SIZE in the environment."""
    SINGLE = "single process"


class Backend(StrEnum):
    """Backend of the process group."""

    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """What the operator told the program through DDPJOB_*; the defaults are those of a run without an operator."""

    name: str = "local"
    """Name of the DDPJob."""
    namespace: str = ""
    uid: str = ""
    """Uid of the DDPJob."""
    attempt: int = 0
    """How often all pods of the job have been made anew."""
    backend: Backend | None = None
    """None leaves the choice to the devices at hand."""
    processes_per_node: int | None = None
    """How many processes a program is to spawn on each node that spawns them itself; None leaves it to the program."""
    metrics_port: int | None = None
    """Port of local rank 0's endpoint, local rank k has k more; None serves nothing."""
    checkpoint_path: str | None = None
    """Folder of the job's own checkpoints, beside those of other jobs."""
    checkpoint_keep_last: int | None = None
    """How many checkpoints stay; None leaves it to the program."""
    resume_from: str | None = None
    """Name of the older job whose checkpoints are continued."""
    progress_deadline_seconds: int = 0
    """Without a finished step for so long a rank shows where it hangs; 0 never does."""
    progress_file: str | None = None
    """File for the last progress of rank 0, which survives the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The place of this process in the training."""

    launcher: Launcher
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    """Training processes on this node."""
    node_rank: int
    """Under an operator the pod's ordinal, under every launcher."""
    master_address: str | None
    """Host of the store where the processes meet; None where none is needed."""
    master_port: int | None
    restart_count: int = 0
    """How often torchrun has restarted the processes within this attempt."""
    job: JobEnvironment = JobEnvironment()
    arguments: tuple[str, ...] = ()
    """The program's own arguments, without the local rank that torch.distributed.launch adds."""

    @property
    def http_port(self) -> int | None:
        """Port of this process' endpoint, None where it serves nothing."""
        return None if self.job.metrics_port is None else self.job.metrics_port + self.local_rank


def current_environment() -> Environment:
    """The environment of this very process.

    Raises:
        MisuseError: it was started in a way that cannot work.
    """
    return parse_environment(os.environ, sys.argv[1:])


def parse_environment(variables: Mapping[str, str], arguments: Sequence[str] = ()) -> Environment:
    """The place in the training that a launcher gave to a process.

    Args:
        variables: environment variables.
        arguments: command line without the program's name.

    Raises:
        MisuseError: variables are missing, contradict each other or are no numbers.
    """
    told = _Variables(variables)
    local_rank, own = _split_local_rank(arguments)
    job = _parse_job(told)
    if "TORCHELASTIC_RUN_ID" in variables:
        return _from_torchrun(told, job, local_rank, own)
    if local_rank is not None:
        raise MisuseError(
            f"{LOCAL_RANK_OPTIONS[0]}={local_rank} is an argument, but the other variables of "
            "torch.distributed.launch are missing: start the program with it, or with torchrun"
        )
    if "OMPI_COMM_WORLD_RANK" in variables or "OMPI_COMM_WORLD_SIZE" in variables:
        return _from_mpirun(told, job, own)
    if any(name in variables for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return _from_python(told, job, own)
    return _alone(told, job, own)


class _Variables:
    """Environment variables with one message for each way of being wrong."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, name: str) -> str | None:
        return self._variables.get(name) or None

    def number(self, name: str, *, least: int = 0, most: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        # int() alone would take "1_0", " 1" and digits of other scripts.
        if not (text.isascii() and text.isdigit()):
            raise MisuseError(f"{name}={text!r} is no whole number")
        number = int(text)
        if number < least or (most is not None and number > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise MisuseError(f"{name}={number} must be {bounds}")
        return number

    def needed(self, name: str, reason: str, *, least: int = 0, most: int | None = None) -> int:
        number = self.number(name, least=least, most=most)
        if number is None:
            raise MisuseError(f"{name} is not set: {reason}")
        return number

    def needed_text(self, name: str, reason: str) -> str:
        text = self.text(name)
        if text is None:
            raise MisuseError(f"{name} is not set: {reason}")
        return text


def _split_local_rank(arguments: Sequence[str]) -> tuple[int | None, tuple[str, ...]]:
    """The local rank among the arguments, in either spelling, and the other arguments."""
    found: int | None = None
    own: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        option, equals, value = argument.partition("=")
        if argument == "--":
            own += [argument, *rest]
            break
        if option not in LOCAL_RANK_OPTIONS:
            own.append(argument)
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        if not (value.isascii() and value.isdigit()):
            raise MisuseError(f"{option} needs a whole number, not {value!r}")
        if found is not None and found != int(value):
            raise MisuseError(f"the local rank is given twice: {found} and {value}")
        found = int(value)
    return found, tuple(own)


def _parse_job(told: _Variables) -> JobEnvironment:
    backend = told.text("DDPJOB_BACKEND") or "auto"
    if backend not in ("auto", *Backend):
        raise MisuseError(f"DDPJOB_BACKEND={backend!r} must be auto, {', '.join(Backend)}")
    return JobEnvironment(
        name=told.text("DDPJOB_NAME") or "local",
        namespace=told.text("DDPJOB_NAMESPACE") or "",
        uid=told.text("DDPJOB_UID") or "",
        attempt=told.number("DDPJOB_ATTEMPT") or 0,
        backend=None if backend == "auto" else Backend(backend),
        processes_per_node=told.number("DDPJOB_PROCS_PER_NODE", least=1),
        metrics_port=told.number("DDPJOB_METRICS_PORT", least=1, most=HIGHEST_PORT),
        checkpoint_path=told.text("DDPJOB_CHECKPOINT_PATH"),
        checkpoint_keep_last=told.number("DDPJOB_CHECKPOINT_KEEP_LAST", least=1),
        resume_from=told.text("DDPJOB_RESUME_FROM"),
        progress_deadline_seconds=told.number("DDPJOB_PROGRESS_DEADLINE_SECONDS") or 0,
        progress_file=told.text("DDPJOB_PROGRESS_FILE"),
    )


def _place(
    told: _Variables, *, rank: int, world_size: int, local_rank: int, local_world_size: int, group_rank: int | None
) -> dict[str, int]:
    """The five numbers of a place, checked against each other."""
    if rank >= world_size:
        raise MisuseError(f"rank {rank} does not exist among {world_size} processes: ranks count from 0")
    if local_rank >= local_world_size:
        raise MisuseError(
            f"local rank {local_rank} does not exist among {local_world_size} processes of a node: they count from 0"
        )
    if local_world_size > world_size:
        raise MisuseError(f"{local_world_size} processes on a node, but only {world_size} in all")
    node_rank = told.number("DDPJOB_NODE_RANK")
    if node_rank is None:
        node_rank = group_rank if group_rank is not None else rank // local_world_size
    return {
        "rank": rank,
        "world_size": world_size,
        "local_rank": local_rank,
        "local_world_size": local_world_size,
        "node_rank": node_rank,
    }


def _from_torchrun(told: _Variables, job: JobEnvironment, argument: int | None, own: tuple[str, ...]) -> Environment:
    reason = "torchrun sets it for every process; do not remove it"
    local_rank = told.needed("LOCAL_RANK", reason)
    if argument is not None and argument != local_rank:
        raise MisuseError(f"{LOCAL_RANK_OPTIONS[0]}={argument} contradicts LOCAL_RANK={local_rank}")
    return Environment(
        launcher=Launcher.TORCHRUN if argument is None else Launcher.LAUNCH,
        **_place(
            told,
            rank=told.needed("RANK", reason),
            world_size=told.needed("WORLD_SIZE", reason, least=1),
            local_rank=local_rank,
            local_world_size=told.needed("LOCAL_WORLD_SIZE", reason, least=1),
            group_rank=told.number("GROUP_RANK"),
        ),
        master_address=told.needed_text("MASTER_ADDR", reason),
        master_port=told.needed("MASTER_PORT", reason, least=1, most=HIGHEST_PORT),
        restart_count=told.number("TORCHELASTIC_RESTART_COUNT") or 0,
        job=job,
        arguments=own,
    )


def _from_mpirun(told: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    reason = "Open MPI's mpirun sets it for every process; do not remove it"
    rank = told.needed("OMPI_COMM_WORLD_RANK", reason)
    world_size = told.needed("OMPI_COMM_WORLD_SIZE", reason, least=1)
    local_world_size = told.needed("OMPI_COMM_WORLD_LOCAL_SIZE", reason, least=1)
    for name, number in (("RANK", rank), ("WORLD_SIZE", world_size)):
        given = told.number(name)
        if given is not None and given != number:
            raise MisuseError(f"{name}={given} contradicts mpirun, which says {number}: do not set {name} under mpirun")
    address = told.text("MASTER_ADDR")
    if address is None and local_world_size == world_size:
        address = "127.0.0.1"
    if address is None and job.backend is not Backend.MPI:
        raise MisuseError(
            "MASTER_ADDR is not set: under mpirun on several nodes give the host of rank 0 "
            "(mpirun -x MASTER_ADDR=...), or use the backend mpi, which needs none"
        )
    port = told.number("MASTER_PORT", least=1, most=HIGHEST_PORT)
    return Environment(
        launcher=Launcher.MPIRUN,
        **_place(
            told,
            rank=rank,
            world_size=world_size,
            local_rank=told.needed("OMPI_COMM_WORLD_LOCAL_RANK", reason),
            local_world_size=local_world_size,
            group_rank=None,
        ),
        master_address=address,
        master_port=None if address is None else port or DEFAULT_MASTER_PORT,
        job=job,
        arguments=own,
    )


def _from_python(told: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    reason = "without a launcher RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all needed, or none of them"
    rank = told.needed("RANK", reason)
    world_size = told.needed("WORLD_SIZE", reason, least=1)
    local_rank = told.number("LOCAL_RANK")
    local_world_size = told.number("LOCAL_WORLD_SIZE", least=1)
    if local_world_size is None and local_rank:
        raise MisuseError(
            f"LOCAL_RANK={local_rank} without LOCAL_WORLD_SIZE: say how many processes this node has, or set neither"
        )
    return Environment(
        launcher=Launcher.PYTHON,
        **_place(
            told,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank or 0,
            local_world_size=local_world_size or 1,
            group_rank=told.number("NODE_RANK"),
        ),
        master_address=told.needed_text("MASTER_ADDR", reason),
        master_port=told.needed("MASTER_PORT", reason, least=1, most=HIGHEST_PORT),
        job=job,
        arguments=own,
    )


def _alone(told: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    nodes = told.number("DDPJOB_NODES", least=1) or 1
    if nodes > 1:
        # Each pod would train a model of its own, and every one would succeed.
        raise MisuseError(
            f"the job has {nodes} nodes, but no launcher told this process its rank: it would train alone. "
            "Give spec.trainer.script or module instead of command, or start the program with torchrun"
        )
    for name, launcher in _STEP_SIZES.items():
        processes = told.number(name) or 1
        # With the backend mpi they are told their ranks by MPI; in a terminal of srun's only one of them runs.
        if processes > 1 and job.backend is not Backend.MPI and told.text("SLURM_PTY_PORT") is None:
            raise MisuseError(
                f"{name}={processes}: {launcher} has started {processes} processes, of which each would train alone. "
                "Start one torchrun on each node by it, or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; where "
                f"each is to train alone, start it by env -u {name}"
            )
    return Environment(
        launcher=Launcher.SINGLE,
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=told.number("DDPJOB_NODE_RANK") or 0,
        master_address=None,
        master_port=None,
        job=job,
        arguments=own,
    )
