"""Samples per second, and processor time, of the bare loop and of the library's, by turns in one process group.

    torchrun --nproc-per-node 2 -m hack.bench.training.speed PAIRS

A virtual machine's cores are now quicker, now slower, by more than what is to be measured and for seconds at a time:
the loops therefore take turns of ten steps, in the same processes and on the same cores. A pair is five turns of each,
so that what the library does once a second is in every pair. Processor time does not count what a rank waits for
another, and of speed it is not seen who computes: each says what the other cannot.
"""

import json
import os
import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ddpjob_trainer import Group, configure_logging, current_environment, process_group
from hack.bench.training import bare, library
from hack.bench.training.turns import STEPS, TURNS_OF_A_PAIR, Turn, Turns, together
from hack.bench.training.workload import BATCH_SIZE, Images, bind_to_core

_WARM_TURNS = 2


def main() -> None:
    """Measure, and print a pair at a time on rank 0 as JSON."""
    bind_to_core()
    environment = current_environment()
    configure_logging(environment)
    pairs = int(sys.argv[1])
    with process_group(environment) as group:
        dataset = Images((pairs * TURNS_OF_A_PAIR + _WARM_TURNS) * STEPS * BATCH_SIZE * group.world_size)
        turns = Turns(bare.train(dataset))
        library.train(group, dataset, turns)
        found = {"bare": _measured(turns.others, group), "library": _measured(turns.own, group)}
        if group.first:
            for index in range(pairs):
                pair = {loop: speeds[index] for loop, (speeds, _) in found.items()}
                pair |= {f"{loop}_processors": seconds[index] for loop, (_, seconds) in found.items()}
                print(json.dumps(pair), flush=True)
        dist.barrier()
        # Debian's torch may deadlock when it destroys the group.
        os._exit(0)


def _measured(turns: Sequence[Turn], group: Group) -> tuple[list[float], list[float]]:
    """Of each pair: samples per second of all ranks, and seconds of all ranks' processors."""
    parts = together(turns[_WARM_TURNS:], TURNS_OF_A_PAIR)
    processors = torch.tensor([part.processor_seconds for part in parts], dtype=torch.float64)
    dist.all_reduce(processors)
    samples = TURNS_OF_A_PAIR * STEPS * BATCH_SIZE * group.world_size
    return [samples / part.seconds for part in parts], processors.tolist()


if __name__ == "__main__":
    main()
