"""The process group: how the processes of a training meet, and on which device this one computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from ddpjob_trainer.process.environment import Backend, Environment, Launcher, MisuseError
from ddpjob_trainer.process.lifetime import keep_for_ever
from ddpjob_trainer.process.stop import Stopped


@dataclass(frozen=True, slots=True)
class Group:
    """This process among its peers, once they have met."""

    rank: int
    world_size: int
    device: torch.device
    backend: Backend

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone logs, writes and reads checkpoints."""
        return self.rank == 0

    @property
    def label(self) -> str:
        """Name of the process in log lines: `GPU3`, or `CPU3` without GPUs; the number is the rank."""
        return f"{'GPU' if self.device.type == 'cuda' else 'CPU'}{self.rank}"


@contextmanager
def process_group(environment: Environment, timeout: timedelta | None = None) -> Iterator[Group]:
    """Join the group of all processes, and leave it when the body has succeeded or all have agreed to stop.

    Args:
        environment: the place of this process.
        timeout: how long a collective may take; None is torch's own choice for the backend.

    Raises:
        MisuseError: the backend or the devices do not fit the environment.
    """
    device = choose_device(environment)
    backend = choose_backend(environment.job.backend, device)
    if backend is Backend.MPI and environment.launcher is not Launcher.MPIRUN and environment.world_size > 1:
        raise MisuseError(
            f"the backend mpi is told ranks by mpirun alone: under {environment.launcher} each of the "
            f"{environment.world_size} processes would train a model of its own. Use mpirun, or the backend gloo"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if backend is Backend.MPI:
        # Rank and size come from MPI itself.
        dist.init_process_group("mpi", timeout=timeout)
    elif environment.launcher is Launcher.SINGLE:
        # A store in memory: a lone process needs no port, so that several can run on one machine.
        dist.init_process_group(backend.value, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    elif environment.launcher is Launcher.MPIRUN:
        address = environment.master_address or ""
        host = f"[{address}]" if ":" in address else address
        dist.init_process_group(
            backend.value,
            init_method=f"tcp://{host}:{environment.master_port}",
            rank=environment.rank,
            world_size=environment.world_size,
            timeout=timeout,
        )
    else:
        dist.init_process_group(backend.value, init_method="env://", timeout=timeout)
    keep_for_ever(dist.group.WORLD)
    # After an exception the process ends anyway, while leaving the group could wait for peers that never answer.
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), device, backend)
    except Stopped:
        _leave()
        raise
    _leave()


def _leave() -> None:
    # Nobody leaves while others still need the group, and the threads of this process come to rest.
    dist.barrier()
    dist.destroy_process_group()


def choose_device(environment: Environment) -> torch.device:
    """The GPU of this local rank where there are GPUs, else the CPU; MPI moves what is in the host's memory.

    Raises:
        MisuseError: the node has GPUs, but fewer than processes.
    """
    gpus = torch.cuda.device_count()
    if gpus == 0 or environment.job.backend is Backend.MPI:
        return torch.device("cpu")
    if environment.local_rank >= gpus:
        raise MisuseError(
            f"local rank {environment.local_rank} has no GPU: this process sees {gpus}. "
            "Start at most as many processes a node as it has GPUs"
        )
    return torch.device("cuda", environment.local_rank)


def choose_backend(asked: Backend | None, device: torch.device) -> Backend:
    """The backend that was asked for, or the one that fits the device.

    Raises:
        MisuseError: the backend is not in this torch, or nccl is asked for without a GPU.
    """
    backend = asked or (Backend.NCCL if device.type == "cuda" else Backend.GLOO)
    if backend is Backend.NCCL and device.type != "cuda":
        raise MisuseError("the backend nccl needs a GPU for every process, and none is visible here: use gloo")
    if not dist.is_backend_available(backend.value):
        raise MisuseError(f"this torch ({torch.__version__}) is built without the backend {backend}")
    return backend
