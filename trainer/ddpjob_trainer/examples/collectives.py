"""Latency and bandwidth of all_reduce, all_gather, broadcast and reduce, for messages of growing size.

    torchrun --nproc-per-node 2 -m ddpjob_trainer.examples.collectives --largest 16M

Like nccl-tests, for any backend. `bus` is the bandwidth that the hardware must have carried, which can be compared
between numbers of ranks: 2(n-1)/n of the message per second for all_reduce, (n-1)/n for all_gather, where the message
is what all ranks gather together, and all of it for broadcast and reduce (github.com/NVIDIA/nccl-tests,
doc/PERFORMANCE.md). Every result is checked.
"""

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

from ddpjob_trainer import configure_logging, current_environment, process_group
from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.environment import Backend
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.lifetime import keep_forever

# Two tensors per collective, for each of the two threads of a gloo group, and the slowest time.
_HELD: Final = 5
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FLOAT: Final = 4
_WARM_UP: Final = 3


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, and how to measure it."""

    name: str
    run: Callable[[torch.Tensor, Group], torch.Tensor]
    """Given this rank's message, which may be overwritten, returns a tensor with the result."""
    expected: Callable[[Group], float]
    """Mean of the result on rank 0 if every rank r sends messages full of r + 1."""
    carried: Callable[[int], float]
    """Fraction of the message that the hardware carries, given the number of ranks."""


def _all_reduce(message: torch.Tensor, _: Group) -> torch.Tensor:
    dist.all_reduce(message)
    return message


def _all_gather(message: torch.Tensor, group: Group) -> torch.Tensor:
    share = message[: len(message) // group.world_size]
    gathered = torch.empty(len(share) * group.world_size, device=message.device)
    if group.backend is Backend.MPI:
        # torch's MPI can only gather into a list of tensors.
        dist.all_gather(list(gathered.chunk(group.world_size)), share)
    else:
        dist.all_gather_into_tensor(gathered, share)
    return gathered


def _broadcast(message: torch.Tensor, _: Group) -> torch.Tensor:
    dist.broadcast(message, src=0)
    return message


def _reduce(message: torch.Tensor, _: Group) -> torch.Tensor:
    dist.reduce(message, dst=0)
    return message


def _sum(group: Group) -> float:
    return group.world_size * (group.world_size + 1) / 2


def _mean(group: Group) -> float:
    return _sum(group) / group.world_size


COLLECTIVES: Final = (
    Collective("all_reduce", _all_reduce, _sum, lambda ranks: 2 * (ranks - 1) / ranks),
    Collective("all_gather", _all_gather, _mean, lambda ranks: (ranks - 1) / ranks),
    Collective("broadcast", _broadcast, lambda _: 1.0, lambda _: 1.0),
    Collective("reduce", _reduce, _sum, lambda _: 1.0),
)


def parse_size(text: str) -> int:
    """Bytes of 64, 4K, 16M or 1G.

    Raises:
        argparse.ArgumentTypeError: it is none of these.
    """
    number, unit = (text, "") if text.isdigit() else (text[:-1], text[-1:].upper())
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: use bytes, such as 64, 4K, 16M or 1G")
    return int(number) * _UNITS[unit]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="collectives", description="Measure collectives.")
    parser.add_argument("--smallest", type=parse_size, default=parse_size("1K"), help="bytes of the first message")
    parser.add_argument("--largest", type=parse_size, default=parse_size("16M"), help="bytes of the last message")
    parser.add_argument("--factor", type=int, default=4, help="factor between the sizes of two messages")
    parser.add_argument("--repeat", type=int, default=20, help="number of measurements per message")
    parsed = parser.parse_args(arguments)
    if parsed.factor < len("ab") or parsed.repeat < 1 or parsed.smallest > parsed.largest:
        parser.error("--factor must be at least 2, --repeat at least 1, and --smallest at most --largest")
    return parsed


def seconds(collective: Collective, size: int, group: Group, repeat: int, held: deque[torch.Tensor]) -> float:
    """Median time of the slowest rank for a message of this size.

    The last tensors go into `held`, since the group's threads release a tensor some time after the collective.

    Raises:
        RuntimeError: a result is wrong.
    """
    # Whole floats for each rank, at least one.
    length = max(size // _FLOAT // group.world_size, 1) * group.world_size
    times: list[float] = []
    for number in range(_WARM_UP + repeat):
        message = torch.full((length,), float(group.rank + 1), device=group.device)
        dist.barrier()
        begun = _now(group)
        result = collective.run(message, group)
        held += (message, result)
        passed = _now(group) - begun
        if group.first and abs(float(result.mean()) - collective.expected(group)) > 1e-3 * group.world_size:
            raise RuntimeError(f"{collective.name} of {size} bytes gives {float(result.mean())}")
        if number >= _WARM_UP:
            times.append(passed)
    slowest = torch.tensor([statistics.median(times)], dtype=torch.float64, device=group.device)
    held.append(slowest)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def _now(group: Group) -> float:
    if group.device.type == "cuda":
        torch.cuda.synchronize(group.device)
    return time.perf_counter()


def main() -> None:
    """Measure, and print a table on rank 0."""
    environment = current_environment()
    asked = parse_arguments(environment.arguments)
    configure_logging(environment)
    with process_group(environment) as group:
        held = deque[torch.Tensor](maxlen=_HELD)
        keep_forever(held)
        if group.first:
            say(f"{group.world_size} ranks on {group.device.type}, {group.backend}, torch {torch.__version__}")
            say(f"{'collective':<11} {'bytes':>11} {'time us':>11} {'MB/s':>9} {'bus MB/s':>9}")
        for collective in COLLECTIVES:
            size = asked.smallest
            while size <= asked.largest:
                took = seconds(collective, size, group, asked.repeat, held)
                speed = size / took / 1e6
                bus = speed * collective.carried(group.world_size)
                if group.first:
                    say(f"{collective.name:<11} {size:>11} {took * 1e6:>11.1f} {speed:>9.1f} {bus:>9.1f}")
                size *= asked.factor


if __name__ == "__main__":
    main()
