"""Starts real trainings under real launchers and reads what they print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from forked import Rank, forked

from tests.ports import free_port

DIGITS = ("-m", "ddpjob_trainer.examples.digits")
SHORT = ("--total-epochs", "2", "--save-every", "1", "--batch-size", "32")
_DIGEST = re.compile(r"\[CPU(\d+)\] World size (\d+) \| Parameters sha256 ([0-9a-f]{64})")


@dataclass(frozen=True)
class Training:
    """What a training left behind."""

    code: int
    output: str

    @property
    def world_sizes(self) -> dict[int, int]:
        return {int(rank): int(size) for rank, size, _ in _DIGEST.findall(self.output)}

    @property
    def digests(self) -> dict[int, str]:
        return {int(rank): digest for rank, _, digest in _DIGEST.findall(self.output)}

    @property
    def digest(self) -> str:
        """The one digest that all ranks have."""
        assert len(set(self.digests.values())) == 1, self.output
        return self.digests[0]

    @property
    def losses(self) -> dict[int, str]:
        """Step to loss, with all digits that were logged."""
        found = re.findall(r"step (\d+)/\d+ \| loss (\S+)", self.output)
        return {int(step): loss for step, loss in found}


def environment(**more: str) -> dict[str, str]:
    """The environment of this process with one thread a process, and without a job's variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DDPJOB_", "PET_"))}
    return {**own, "OMP_NUM_THREADS": "1", **more}


def torchrun(processes: int, *program: str, port: int = 0) -> list[str]:
    """The command of torchrun with the c10d rendezvous on this machine."""
    options = ["--nnodes", "1", "--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test", "--max-restarts", "0"]
    return [sys.executable, "-m", "torch.distributed.run", *options, *program]


TORCHRUN: Mapping[str, str] = {"TORCHELASTIC_RUN_ID": "test"}
"""By this variable a rank knows torchrun."""


def alone(*program: str, variables: Mapping[str, str] | None = None) -> Training:
    """Run a program as plain python does, in one process that is given no rank; what became of it."""
    with forked(program, [environment(**(variables or {}))]) as (process,):
        return Training(*process.end())


@contextmanager
def ranks_started(
    processes: int, *program: str, variables: Mapping[str, str] | None = None, nodes: int = 1
) -> Iterator[list[Rank]]:
    """The running ranks of a training without a launcher, each in a session of its own; all nodes are this one."""
    each = processes // nodes
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_WORLD_SIZE": str(each)}
    own = environment(**place, **(variables or {}), WORLD_SIZE=str(processes))
    ranks = [
        {**own, "RANK": str(rank), "LOCAL_RANK": str(rank % each), "NODE_RANK": str(rank // each)}
        for rank in range(processes)
    ]
    with forked(program, ranks) as running:
        yield running


def plain(processes: int, *program: str, variables: Mapping[str, str] | None = None, nodes: int = 1) -> list[Training]:
    """Run a training without a launcher to its end; what became of each rank."""
    started_ranks = ranks_started(processes, *program, variables=variables, nodes=nodes)
    with started_ranks as ranks, ThreadPoolExecutor(processes) as readers:
        return list(readers.map(lambda rank: Training(*rank.end()), ranks))


def together(processes: int, *program: str, variables: Mapping[str, str] | None = None, nodes: int = 1) -> Training:
    """Run a training without a launcher to its end; what became of all its ranks."""
    ranks = plain(processes, *program, variables=variables, nodes=nodes)
    failed = next((rank.code for rank in ranks if rank.code != 0), 0)
    return Training(failed, "".join(rank.output for rank in ranks))


def whole(processes: int, *program: str, variables: Mapping[str, str] | None = None, nodes: int = 1) -> Training:
    """Run a training without a launcher, which must succeed."""
    training = together(processes, *program, variables=variables, nodes=nodes)
    assert training.code == 0, training.output
    return training


def in_interpreters(processes: int, *program: str) -> list[Training]:
    """Run a training without a launcher, each rank in an interpreter of its own from beginning to end."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
    command = [sys.executable, *program]
    with ExitStack() as running, ThreadPoolExecutor(processes) as readers:
        ranks = [running.enter_context(started(command, {**place, "RANK": str(rank)})) for rank in range(processes)]
        said = list(readers.map(lambda rank: rank.communicate()[0], ranks))
        return [Training(rank.returncode, output) for rank, output in zip(ranks, said, strict=True)]


@contextmanager
def started(command: Sequence[str], variables: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A running training, killed with all its processes where the body fails."""
    process = subprocess.Popen(
        command,
        env=environment(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> Training:
    """Run a training to its end."""
    done = subprocess.run(
        command,
        env=environment(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Training(done.returncode, done.stdout)


def succeed(command: Sequence[str], variables: Mapping[str, str] | None = None) -> Training:
    """Run a training that must succeed."""
    training = run(command, variables)
    assert training.code == 0, training.output
    return training


def checkpoints_in(folder: Path) -> list[str]:
    """Names of the checkpoints, the oldest first."""
    return sorted(entry.name for entry in folder.glob("step-*"))
