"""Several processes of one training, spawned by a program started with plain python."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from types import FrameType
from typing import Final

import torch
import torch.multiprocessing as mp

from ddpjob_trainer.process.environment import Environment, Launcher, MisuseError

AGREED_STOP: Final = 128 + signal.SIGTERM
"""Exit code of a rank that has saved and left because all ranks were asked to stop."""


def spawn(train: Callable[[], None], environment: Environment, processes: int | None = None) -> None:
    """Run a function in several processes of this node, each of which finds its place in its environment.

    With several nodes, call it on each of them. SIGTERM is passed on, and the processes are waited for; when all ranks
    have agreed to stop, this process ends with the same exit code.

    Args:
        train: function of an importable module, since each process is a new interpreter.
        environment: of this process, which is not one of the ranks.
        processes: how many on this node; None uses the number that the job requests, else one per GPU, else one.

    Raises:
        MisuseError: another launcher has already started several processes.
        torch.multiprocessing.ProcessRaisedException: one has raised an exception; the message holds its traceback.
        torch.multiprocessing.ProcessExitedException: one has ended with an exit code other than 0, or was killed.
    """
    if environment.launcher not in (Launcher.PYTHON, Launcher.SINGLE):
        raise MisuseError(
            f"{environment.launcher} has already started a process per rank: start this program with plain python"
        )
    count = processes or environment.job.processes_per_node or torch.cuda.device_count() or 1
    address = environment.master_address or "127.0.0.1"
    port = environment.master_port or _free_port()
    places = [place(environment, local, count, address, port) for local in range(count)]
    context = mp.start_processes(_run, args=(train, places), nprocs=count, join=False, start_method="spawn")
    assert context is not None  # noqa: S101 join=False gives one

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in context.processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        left = {process.sentinel: process for process in context.processes}
        while left:
            ended = [left.pop(sentinel) for sentinel in wait(list(left)) if isinstance(sentinel, int)]
            if any(process.exitcode not in (0, AGREED_STOP) for process in ended):
                # Ends the others, and raises the failure.
                while not context.join():
                    pass
    finally:
        signal.signal(signal.SIGTERM, before)
    if any(process.exitcode == AGREED_STOP for process in context.processes):
        sys.exit(AGREED_STOP)


def place(environment: Environment, local_rank: int, processes: int, address: str, port: int) -> Mapping[str, str]:
    """The variables that give a spawned process its place."""
    return {
        "RANK": str(environment.rank * processes + local_rank),
        "WORLD_SIZE": str(environment.world_size * processes),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(processes),
        "NODE_RANK": str(environment.rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def _run(local_rank: int, train: Callable[[], None], places: list[Mapping[str, str]]) -> None:
    os.environ.update(places[local_rank])
    train()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
