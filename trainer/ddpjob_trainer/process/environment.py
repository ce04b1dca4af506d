"""What a process learns from whatever started it, parsed once.

Every launcher passes a process its place in the training differently. Only `parse_environment` reads those variables;
everything else gets the frozen `Environment` that it returns.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HIGHEST_PORT: Final = 65535
DEFAULT_MASTER_PORT: Final = 29500
DEFAULT_GRACE_PERIOD: Final = 30
"""Seconds: that of a pod, and of torchrun."""
LOCAL_RANK_OPTIONS: Final = ("--local-rank", "--local_rank")
_STEP_SIZES: Final = {"SLURM_STEP_NUM_TASKS": "srun", "PMI_SIZE": "MPICH's mpirun"}
"""Variables with the number of processes, set by launchers whose ranks are not read here.

Not SLURM_NTASKS: it is also set in a batch script, which is one process.
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
    """What the operator passes to the program in DDPJOB_*; the defaults apply without an operator."""

    name: str = "local"
    """Name of the DDPJob."""
    namespace: str = ""
    uid: str = ""
    """Uid of the DDPJob."""
    attempt: int = 0
    """How often all pods of the job have been recreated."""
    backend: Backend | None = None
    """None chooses by the available devices."""
    processes_per_node: int | None = None
    """How many processes a program that spawns them itself should start per node; None leaves it to the program."""
    metrics_port: int | None = None
    """Port of local rank 0's endpoint, plus k for local rank k; None serves nothing."""
    checkpoint_path: str | None = None
    """Folder of the job's own checkpoints, next to those of other jobs."""
    checkpoint_keep_last: int | None = None
    """How many checkpoints are kept; None leaves it to the program."""
    resume_from: str | None = None
    """Name of the older job to continue from."""
    grace_period_seconds: int = DEFAULT_GRACE_PERIOD
    """After this time a process that was asked to stop is killed."""
    progress_deadline_seconds: int = 0
    """After this time without a finished step a rank shows where it hangs; 0: never."""
    progress_file: str | None = None
    """File for the latest progress of rank 0, which outlives the process."""
    replaces_ranks: bool = False
    """Whether the launcher replaces a rank that was killed, if the others say that they can go on with another one."""
    rejoin_seconds: int = 0
    """How long the ranks wait for those of a lost node to come back in another pod; 0: they never do."""
    membership: int = 0
    """Generation of the membership in which this process was started."""
    member: int = 0
    """Generation of the membership that has brought this pod; 0: the first one of its node."""


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
    """With an operator the pod's ordinal, whatever the launcher."""
    master_address: str | None
    """Host of the store where the processes meet; None if none is needed."""
    master_port: int | None
    restart_count: int = 0
    """How often torchrun has restarted the processes within this attempt."""
    job: JobEnvironment = JobEnvironment()
    arguments: tuple[str, ...] = ()
    """The program's own arguments, without the local rank that torch.distributed.launch adds."""

    @property
    def http_port(self) -> int | None:
        """Port of this process' endpoint, None if it serves nothing."""
        return None if self.job.metrics_port is None else self.job.metrics_port + self.local_rank


def current_environment() -> Environment:
    """The environment of this process.

    Raises:
        MisuseError: it was started in a way that cannot work.
    """
    return parse_environment(os.environ, sys.argv[1:])


def parse_environment(variables: Mapping[str, str], arguments: Sequence[str] = ()) -> Environment:
    """The place in the training that a launcher assigned to a process.

    Args:
        variables: environment variables.
        arguments: command line without the program's name.

    Raises:
        MisuseError: variables are missing, contradict each other or are not numbers.
    """
    given = _Variables(variables)
    local_rank, own = _split_local_rank(arguments)
    job = _parse_job(given)
    if "TORCHELASTIC_RUN_ID" in variables:
        return _from_torchrun(given, job, local_rank, own)
    if local_rank is not None:
        raise MisuseError(
            f"{LOCAL_RANK_OPTIONS[0]}={local_rank} is an argument, but the other variables of "
            "torch.distributed.launch are missing: start the program with it, or with torchrun"
        )
    if "OMPI_COMM_WORLD_RANK" in variables or "OMPI_COMM_WORLD_SIZE" in variables:
        return _from_mpirun(given, job, own)
    if any(name in variables for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return _from_python(given, job, own)
    return _alone(given, job, own)


class _Variables:
    """Environment variables, with one message for each way of being wrong."""

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
            raise MisuseError(f"{name}={text!r} must be a whole number")
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
            raise MisuseError(f"{option} must be a whole number, not {value!r}")
        if found is not None and found != int(value):
            raise MisuseError(f"the local rank is given twice, as {found} and as {value}")
        found = int(value)
    return found, tuple(own)


def _parse_job(given: _Variables) -> JobEnvironment:
    backend = given.text("DDPJOB_BACKEND") or "auto"
    if backend not in ("auto", *Backend):
        raise MisuseError(f"DDPJOB_BACKEND={backend!r} must be one of auto, {', '.join(Backend)}")
    grace = given.number("DDPJOB_GRACE_PERIOD_SECONDS")
    return JobEnvironment(
        name=given.text("DDPJOB_NAME") or "local",
        namespace=given.text("DDPJOB_NAMESPACE") or "",
        uid=given.text("DDPJOB_UID") or "",
        attempt=given.number("DDPJOB_ATTEMPT") or 0,
        backend=None if backend == "auto" else Backend(backend),
        processes_per_node=given.number("DDPJOB_PROCS_PER_NODE", least=1),
        metrics_port=given.number("DDPJOB_METRICS_PORT", least=1, most=HIGHEST_PORT),
        checkpoint_path=given.text("DDPJOB_CHECKPOINT_PATH"),
        checkpoint_keep_last=given.number("DDPJOB_CHECKPOINT_KEEP_LAST", least=1),
        resume_from=given.text("DDPJOB_RESUME_FROM"),
        grace_period_seconds=DEFAULT_GRACE_PERIOD if grace is None else grace,
        progress_deadline_seconds=given.number("DDPJOB_PROGRESS_DEADLINE_SECONDS") or 0,
        progress_file=given.text("DDPJOB_PROGRESS_FILE"),
        # The store has to outlive rank 0: newer versions of torch have it in the launcher.
        replaces_ranks=bool(given.text("DDPJOB_REPLACES_RANKS"))
        and given.text("TORCHELASTIC_USE_AGENT_STORE") == "True",
        rejoin_seconds=given.number("DDPJOB_REJOIN_SECONDS") or 0,
        membership=given.number("DDPJOB_GENERATION") or 0,
        member=given.number("DDPJOB_MEMBER") or 0,
    )


def _place(
    given: _Variables, *, rank: int, world_size: int, local_rank: int, local_world_size: int, group_rank: int | None
) -> dict[str, int]:
    """The five numbers of a place, checked against each other."""
    if rank >= world_size:
        raise MisuseError(f"rank {rank} does not exist among {world_size} processes: ranks count from 0")
    if local_rank >= local_world_size:
        raise MisuseError(
            f"local rank {local_rank} does not exist among {local_world_size} processes per node: ranks count from 0"
        )
    if local_world_size > world_size:
        raise MisuseError(f"{local_world_size} processes per node, but only {world_size} in total")
    node_rank = given.number("DDPJOB_NODE_RANK")
    if node_rank is None:
        node_rank = group_rank if group_rank is not None else rank // local_world_size
    return {
        "rank": rank,
        "world_size": world_size,
        "local_rank": local_rank,
        "local_world_size": local_world_size,
        "node_rank": node_rank,
    }


def _from_torchrun(given: _Variables, job: JobEnvironment, argument: int | None, own: tuple[str, ...]) -> Environment:
    reason = "torchrun sets it for every process; do not remove it"
    local_rank = given.needed("LOCAL_RANK", reason)
    if argument is not None and argument != local_rank:
        raise MisuseError(f"{LOCAL_RANK_OPTIONS[0]}={argument} contradicts LOCAL_RANK={local_rank}")
    return Environment(
        launcher=Launcher.TORCHRUN if argument is None else Launcher.LAUNCH,
        **_place(
            given,
            rank=given.needed("RANK", reason),
            world_size=given.needed("WORLD_SIZE", reason, least=1),
            local_rank=local_rank,
            local_world_size=given.needed("LOCAL_WORLD_SIZE", reason, least=1),
            group_rank=given.number("GROUP_RANK"),
        ),
        master_address=given.needed_text("MASTER_ADDR", reason),
        master_port=given.needed("MASTER_PORT", reason, least=1, most=HIGHEST_PORT),
        restart_count=given.number("TORCHELASTIC_RESTART_COUNT") or 0,
        job=job,
        arguments=own,
    )


def _from_mpirun(given: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    reason = "Open MPI's mpirun sets it for every process; do not remove it"
    rank = given.needed("OMPI_COMM_WORLD_RANK", reason)
    world_size = given.needed("OMPI_COMM_WORLD_SIZE", reason, least=1)
    local_world_size = given.needed("OMPI_COMM_WORLD_LOCAL_SIZE", reason, least=1)
    for name, number in (("RANK", rank), ("WORLD_SIZE", world_size)):
        own_number = given.number(name)
        if own_number is not None and own_number != number:
            raise MisuseError(f"{name}={own_number} contradicts mpirun, which assigned {number}: unset it under mpirun")
    address = given.text("MASTER_ADDR")
    if address is None and local_world_size == world_size:
        address = "127.0.0.1"
    if address is None and job.backend is not Backend.MPI:
        raise MisuseError(
            "MASTER_ADDR is not set: under mpirun on several nodes set it to the host of rank 0 "
            "(mpirun -x MASTER_ADDR=...), or use the backend mpi, which does not need it"
        )
    port = given.number("MASTER_PORT", least=1, most=HIGHEST_PORT)
    return Environment(
        launcher=Launcher.MPIRUN,
        **_place(
            given,
            rank=rank,
            world_size=world_size,
            local_rank=given.needed("OMPI_COMM_WORLD_LOCAL_RANK", reason),
            local_world_size=local_world_size,
            group_rank=None,
        ),
        master_address=address,
        master_port=None if address is None else port or DEFAULT_MASTER_PORT,
        job=job,
        arguments=own,
    )


def _from_python(given: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    reason = "without a launcher RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all needed, or none of them"
    rank = given.needed("RANK", reason)
    world_size = given.needed("WORLD_SIZE", reason, least=1)
    local_rank = given.number("LOCAL_RANK")
    local_world_size = given.number("LOCAL_WORLD_SIZE", least=1)
    if local_world_size is None and local_rank:
        raise MisuseError(f"LOCAL_RANK={local_rank} without LOCAL_WORLD_SIZE: set both, or neither")
    return Environment(
        launcher=Launcher.PYTHON,
        **_place(
            given,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank or 0,
            local_world_size=local_world_size or 1,
            group_rank=given.number("NODE_RANK"),
        ),
        master_address=given.needed_text("MASTER_ADDR", reason),
        master_port=given.needed("MASTER_PORT", reason, least=1, most=HIGHEST_PORT),
        job=job,
        arguments=own,
    )


def _alone(given: _Variables, job: JobEnvironment, own: tuple[str, ...]) -> Environment:
    nodes = given.number("DDPJOB_NODES", least=1) or 1
    if nodes > 1:
        # Each pod would train its own model, and each would succeed.
        raise MisuseError(
            f"the job has {nodes} nodes, but no launcher assigned a rank to this process: it would train alone. "
            "Set spec.trainer.script or module instead of command, or start the program with torchrun"
        )
    for name, launcher in _STEP_SIZES.items():
        processes = given.number(name) or 1
        # With the backend mpi the ranks come from MPI; in a terminal of srun only one process runs.
        if processes > 1 and job.backend is not Backend.MPI and given.text("SLURM_PTY_PORT") is None:
            raise MisuseError(
                f"{name}={processes}: {launcher} has started {processes} processes, and each would train alone. "
                "Use it to start one torchrun per node, or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; if "
                f"each should train alone, start it with env -u {name}"
            )
    return Environment(
        launcher=Launcher.SINGLE,
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=given.number("DDPJOB_NODE_RANK") or 0,
        master_address=None,
        master_port=None,
        job=job,
        arguments=own,
    )
