r"""The benchmark: python3 -m hack.bench.agents [--agents 64] [--runs 3] [--backends c10d,static].

It runs where torch is, such as in the trainer's image, and needs nothing else but this repository:

    podman run --rm --shm-size=1g -v "$PWD":/repo:ro -w /repo -e PYTHONPATH=/repo:/repo/operator \
        ddpjob-trainer:cpu python3 -m hack.bench.agents

Each agent is a node of its own with one worker that sleeps. All of them are forks of one process that has loaded torch,
and so share its memory; they wait until the last one is there, and start at the same moment. A run ends when all
workers have slept. torchrun by itself comes first, then the same under our launcher, in turns.
"""

import argparse
import os
import resource
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from ddpjob_launcher import commands
from ddpjob_launcher.archive import archive
from hack.bench.agents.environment import LOOPBACK, Meeting

_LONGEST: Final = 900.0
_OURS: Final = ("PET_", "DDPJOB_", "TORCHELASTIC_")

Agent = Callable[[Meeting, int], None]
"""Runs the agent of a node in this process."""


@dataclass(frozen=True, slots=True)
class Met:
    """How long it took.

    Attributes:
        seconds: from the start of the agents to the last rank's first statement.
        first: to the first rank's.
        all: until all agents have ended, without the sleep of the workers.
        processor: seconds of a core that agents and workers have used together.
        failed: how many agents ended with an error.
    """

    seconds: float
    first: float
    all: float
    processor: float
    failed: int

    def line(self) -> str:
        """For a person."""
        return (
            f"all ranks run after {self.seconds:6.2f} s (the first after {self.first:.2f}), all agents have ended "
            f"{self.all:.2f} s after their start, {self.processor:.1f} s of CPU"
            + (f", {self.failed} FAILED" if self.failed else "")
        )


def torchrun(meeting: Meeting, node: int) -> None:
    """Torchrun by itself."""
    from torch.distributed import run  # noqa: PLC0415 it may not be installed where this file is checked

    _replace_environment(meeting.torchrun(node))
    run.run(run.parse_args([meeting.program, *meeting.arguments]))


def launcher(meeting: Meeting, node: int) -> None:
    """Torchrun under our launcher, guard included, from the archive that a pod gets."""
    file = meeting.folder / "launcher.pyz"
    # Before any module that copies it: these modules are files here, and workers start from the archive.
    commands.FILE = str(file)
    from ddpjob_launcher import guard  # noqa: PLC0415 see above

    _replace_environment({**meeting.torchrun(node), **meeting.launcher(node)})
    sys.argv = [str(file), *meeting.arguments]
    code = guard.launch()
    if code:
        raise SystemExit(code)


AGENTS: Final[Mapping[str, Agent]] = {"torchrun": torchrun, "launcher": launcher}


def meet(agent: Agent, meeting: Meeting) -> Met:
    """Let all agents start at the same moment, and wait for their end."""
    (meeting.folder / "launcher.pyz").write_bytes(archive("torchrun"))
    gate, go = os.pipe()
    before = _used()
    children = [_fork(agent, meeting, node, gate, go) for node in range(meeting.nodes)]
    os.close(gate)
    # Whatever a fork has to do for itself is over by then.
    time.sleep(1.0)
    begun = time.time()
    os.close(go)
    failed = 0
    for child in children:
        failed += os.waitpid(child, 0)[1] != 0
    ended = time.time()
    files = [meeting.folder / str(rank) for rank in range(meeting.nodes)]
    marks = [float(file.read_text()) - begun for file in files if file.is_file()]
    if len(marks) < meeting.nodes:
        raise SystemExit(f"only {len(marks)} of {meeting.nodes} ranks have run; see the lines above")
    return Met(max(marks), min(marks), ended - begun - meeting.seconds, _used() - before, failed)


def _fork(agent: Agent, meeting: Meeting, node: int, gate: int, go: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(go)
        log = os.open(meeting.folder / f"log-{node}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Nobody writes: it ends when the last one who could has closed it.
        os.read(gate, 1)
        os.close(gate)
        agent(meeting, node)
        code = 0
    except SystemExit as error:
        code = 0 if error.code is None else 1
    except BaseException:  # noqa: BLE001 it is this process' last word
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _replace_environment(variables: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith(_OURS)]:
        del os.environ[name]
    os.environ.update(variables, OMP_NUM_THREADS="1")


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def _logs(folder: Path) -> str:
    logs = sorted(folder.glob("log-*"))
    texts = [f"{log.name}: {log.read_text(errors='replace').strip()[-600:]}" for log in logs]
    return "\n".join([text for text in texts if "Error" in text][:3] or texts[:2])


def bench(arguments: argparse.Namespace) -> bool:
    """Run everything; whether no agent failed."""
    found: dict[tuple[str, str], list[Met]] = {}
    for run in range(arguments.runs):
        for backend in arguments.backends.split(","):
            for who in arguments.who.split(","):
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                    name_of_run = f"{who}-{backend}-{run}"
                    folder = Path(name)
                    meeting = Meeting(backend, arguments.agents, _free_port(), name_of_run, folder, arguments.sleep)
                    try:
                        met = meet(AGENTS[who], meeting)
                    except SystemExit:
                        print(_logs(folder), file=sys.stderr)
                        raise
                    print(f"{backend:6} {who:8}: {met.line()}", flush=True)
                    if met.failed:
                        print(_logs(folder), file=sys.stderr, flush=True)
                found.setdefault((backend, who), []).append(met)
    for (backend, who), all_met in found.items():
        seconds = [met.seconds for met in all_met]
        print(
            f"{arguments.agents} agents, {backend}, {who}: median {median(seconds):.2f} s ({min(seconds):.2f} to "
            f"{max(seconds):.2f}), CPU {median([met.processor for met in all_met]):.1f} s"
        )
    return not any(met.failed for all_met in found.values() for met in all_met)


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backends", default="c10d,static")
    parser.add_argument("--who", default="torchrun,launcher")
    parser.add_argument("--sleep", type=float, default=10.0, help="seconds for which each worker sleeps (%(default)s)")
    arguments = parser.parse_args(words)
    try:
        # Once for all agents, which are forks of this process.
        import torch.distributed.run  # noqa: PLC0415 see `torchrun`
    except ModuleNotFoundError:
        print(
            "torch is not installed here; the head of this file says how it runs in the trainer's image",
            file=sys.stderr,
        )
        return 2
    print(f"torch {torch.__version__}, {os.cpu_count()} cores", flush=True)
    return 0 if bench(arguments) else 1


if __name__ == "__main__":
    raise SystemExit(main())
