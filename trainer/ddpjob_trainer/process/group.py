"""The process group: how the ranks of a training meet, and on which device this one computes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Final

import torch
import torch.distributed as dist

from ddpjob_trainer.process.environment import (
    Backend,
    Environment,
    Launcher,
    MisuseError,
    current_environment,
    parse_environment,
)
from ddpjob_trainer.process.exchange import Exchange
from ddpjob_trainer.process.lifetime import keep_forever
from ddpjob_trainer.process.meeting import Meeting
from ddpjob_trainer.process.patience import wait_for_first
from ddpjob_trainer.process.regrouping import Regrouping
from ddpjob_trainer.process.stop import Stopped, is_requested
from ddpjob_trainer.process.stop_board import Board


# Without slots, which would leave no room for the exchange.
@dataclass(frozen=True)
class Group:
    """This process and its peers."""

    rank: int
    world_size: int
    device: torch.device
    backend: Backend
    environment: Environment
    """How this process was started."""
    regrouping: Regrouping | None = field(default=None, compare=False, repr=False)
    """Forms the next group once a rank was replaced; None where the launcher replaces none."""

    @property
    def process_restarts(self) -> int:
        """How often processes of this attempt were restarted, or replaced, in running pods."""
        replaced = 0 if self.regrouping is None else self.regrouping.replaced
        return self.environment.restart_count + replaced

    @property
    def rejoins(self) -> int | None:
        """Generation of the nodes' membership in which this rank can go on without a node; None if it cannot."""
        ranks = self.regrouping
        return ranks.membership if ranks is not None and ranks.rejoin > 0 and ranks.ready else None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the only one that logs, and that writes and reads checkpoints."""
        return self.rank == 0

    @cached_property
    def exchange(self) -> Exchange:
        """Moves small values between the ranks."""
        return Exchange(self.device)

    @property
    def board(self) -> Board | None:
        """The store where the ranks have met; MPI has none."""
        if self.backend is Backend.MPI or not dist.is_initialized():
            return None
        store: Board = dist.distributed_c10d._get_default_store()  # noqa: SLF001 no public function returns it
        return store

    @property
    def grace_period_seconds(self) -> float:
        """After this time a process that was asked to stop is killed."""
        return self.environment.job.grace_period_seconds

    def sum(self, *values: float) -> list[float]:
        """The sums over all ranks, one per number, exactly the same on every rank; all ranks call it together.

        Combines what each rank has measured on its own share of the data, such as the correct answers of an evaluation.
        """
        return self.exchange.sum(*values)

    def begin_sum(self, value: float) -> Callable[[], float]:
        """Start to add up a number of each rank, without waiting; what is returned waits for the sum.

        All ranks call it together.
        """
        total = self.exchange.begin_sum(torch.tensor(value, dtype=torch.float64))
        return lambda: float(total.result())

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """The ranks' tensors one after the other, the same on every rank; all ranks call it together.

        Args:
            values: of this rank; its length, the first dimension, may differ from the others', and may be 0.

        Raises:
            ValueError: the tensors differ in more than their lengths; on every rank.
        """
        return torch.cat(self.exchange.gather_tensors(values))

    def gather_samples(self, values: torch.Tensor, size: int) -> torch.Tensor:
        """What the ranks have found for each sample, once for each, in the order of the samples, on every rank.

        Rank r of w has read every w-th sample from the r-th on, as torch's DistributedSampler gives them (with
        `shuffle`, in the order that it has drawn). What that repeats at the end, so that all ranks have the same
        number, is left out.

        Args:
            values: of this rank, a row for each of the samples that it has read, in their order.
            size: of the data set.

        Raises:
            ValueError: a rank has fewer rows than samples, or the tensors differ in more; on every rank.
        """
        parts = self.exchange.gather_tensors(values)
        counts = [len(range(rank, size, self.world_size)) for rank in range(self.world_size)]
        for rank, (part, count) in enumerate(zip(parts, counts, strict=True)):
            if not count <= len(part) <= max(counts):
                raise ValueError(
                    f"rank {rank} has values of {len(part)} samples, but reads {count} of {size}: it must read every "
                    f"{self.world_size}-th sample from number {rank} on"
                )
        whole = parts[0].new_empty((size, *parts[0].shape[1:]))
        for rank, part in enumerate(parts):
            whole[rank :: self.world_size] = part[: counts[rank]]
        return whole

    @property
    def label(self) -> str:
        """Name of the process in log lines: `GPU3`, or `CPU3` without GPUs, where 3 is the rank."""
        return f"{'GPU' if self.device.type == 'cuda' else 'CPU'}{self.rank}"


@contextmanager
def process_group(environment: Environment | None = None, timeout: timedelta | None = None) -> Iterator[Group]:
    """Join the group of all ranks, and leave it when the body has succeeded or all ranks have agreed to stop.

    A group that the program has joined by itself is used and not left.

    Args:
        environment: the place of this process; None reads it from the launcher's variables.
        timeout: how long a collective may take; None is torch's own choice for the backend. What rank 0 does alone
            within `train` or `Checkpoints`, or at the end of the body, may take longer.

    Raises:
        MisuseError: the backend or the devices do not match the environment.
    """
    if dist.is_initialized():
        yield existing_group(environment)
        return
    environment = environment or current_environment()
    device = choose_device(environment)
    backend = choose_backend(environment.job.backend, device)
    if backend is Backend.MPI and environment.launcher is not Launcher.MPIRUN and environment.world_size > 1:
        raise MisuseError(
            f"the backend mpi gets its ranks only from mpirun: under {environment.launcher} each of the "
            f"{environment.world_size} processes would train its own model. Use mpirun, or the backend gloo"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    regrouping = None
    if backend is Backend.MPI:
        # Rank and size come from MPI itself.
        dist.init_process_group("mpi", timeout=timeout)
    elif environment.launcher is Launcher.SINGLE:
        # A store in memory: a single process needs no port, so that several can run on one machine.
        dist.init_process_group(backend.value, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    elif environment.launcher is Launcher.MPIRUN:
        address = environment.master_address or ""
        host = f"[{address}]" if ":" in address else address
        _join(backend, f"tcp://{host}:{environment.master_port}", environment, timeout)
    else:
        regrouping = _join(backend, "env://", environment, timeout)
    # After an exception the process ends anyway, while leaving the group could wait for peers that never respond.
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), device, backend, environment, regrouping)
    except Stopped:
        _leave(regrouping)
        raise
    except BaseException:
        keep_forever(dist.group.WORLD)
        raise
    finally:
        if regrouping is not None:
            regrouping.close()
    _leave()


def _join(backend: Backend, url: str, environment: Environment, timeout: timedelta | None) -> Regrouping | None:
    place = {"rank": environment.rank, "world_size": environment.world_size}
    store, rank, size = next(dist.rendezvous(url, **place, timeout=timeout or dist.default_pg_timeout))

    def form(prefix: str, within: timedelta | None) -> None:
        below = dist.PrefixStore(prefix, store)
        dist.init_process_group(backend.value, store=below, rank=rank, world_size=size, timeout=within)

    # A store outlives a group: of an earlier one in this process it still has the addresses.
    _joined[0] += 1
    # nccl has an abort of its own, which is not used yet.
    if not environment.job.replaces_ranks or backend is not Backend.GLOO or size == 1 or _joined[0] > 1:
        form(f"ddpjob/{_joined[0]}", timeout)
        return None
    job, board = environment.job, _board_of_launchers(environment)
    meeting = Meeting(board, rank=rank, world_size=size, member=job.member, hurried=is_requested)
    regrouping = Regrouping(meeting, form, timeout, membership=job.membership, rejoin=job.rejoin_seconds)
    regrouping.join()
    return regrouping


def _board_of_launchers(environment: Environment) -> Board:
    """The keys of the launcher's store that it shares with the ranks, by a connection of its own."""
    address, port = environment.master_address or "", environment.master_port or 0
    store = dist.TCPStore(address, port, is_master=False, timeout=_STORE, wait_for_workers=False)
    board: Board = dist.PrefixStore(f"ddpjob/round/{environment.restart_count}", store)
    return board


_STORE: Final = timedelta(seconds=60)
"""For one operation of the store."""

_joined: Final = [0]
"""Groups that this process has joined so far, the same number on all ranks."""


def existing_group(environment: Environment | None = None) -> Group:
    """The group that this program has joined already.

    Raises:
        MisuseError: its backend is unknown, or does not fit the device.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    if environment is None:
        try:
            environment = current_environment()
        except MisuseError:
            # The launcher's variables are of no use, but the program knows its rank.
            environment = parse_environment({})
    if (environment.rank, environment.world_size) != (rank, size):
        environment = replace(environment, rank=rank, world_size=size)
    # One for each type of device may be named, as in cpu:gloo,cuda:nccl.
    named = dist.get_backend().lower()
    found = next((each for each in (Backend.NCCL, Backend.GLOO, Backend.MPI) if each.value in named), None)
    if found is None:
        raise MisuseError(f"the process group has the backend {named}: use one of {', '.join(Backend)}")
    on_gpu = torch.cuda.is_available() and found is not Backend.MPI
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    return Group(rank, size, device, found, environment)


def _leave(stopped: Regrouping | None = None) -> None:
    """Leave the group together with all ranks; of a training that has stopped, with those that do not go on."""
    keep_forever(dist.group.WORLD)
    if stopped is not None and stopped.rejoin > 0 and stopped.ready:
        stopped.await_stop()
    else:
        wait_for_first()
        # No rank leaves while others still need the group, and the threads of this process become idle.
        dist.barrier()
    dist.destroy_process_group()


def choose_device(environment: Environment) -> torch.device:
    """The GPU of this local rank if the node has GPUs, else the CPU; MPI moves data in the host's memory.

    Raises:
        MisuseError: the node has GPUs, but fewer than local ranks.
    """
    gpus = torch.cuda.device_count()
    if gpus == 0 or environment.job.backend is Backend.MPI:
        return torch.device("cpu")
    if environment.local_rank >= gpus:
        raise MisuseError(
            f"local rank {environment.local_rank} has no GPU: this process sees {gpus}. "
            "Start at most one process per GPU"
        )
    return torch.device("cuda", environment.local_rank)


def choose_backend(requested: Backend | None, device: torch.device) -> Backend:
    """The requested backend, or the one that suits the device.

    Raises:
        MisuseError: this torch does not have the backend, or nccl is requested without a GPU.
    """
    backend = requested or (Backend.NCCL if device.type == "cuda" else Backend.GLOO)
    if backend is Backend.NCCL and device.type != "cuda":
        raise MisuseError("the backend nccl needs a GPU for every process, but none is visible here: use gloo")
    if not dist.is_backend_available(backend.value):
        raise MisuseError(f"this torch ({torch.__version__}) was built without the backend {backend}")
    return backend
