"""Samples a second, and processor time, of the bare loop and of the library's, by turns in one process group.

    torchrun --nproc-per-node 2 -m hack.training.speed PAIRS

A virtual machine's cores are now quicker, now slower, by more than what is to be measured and for seconds at a time:
the loops therefore take turns of ten steps, in the same processes and on the same cores. Processor time does not
count what a rank waits for another, and of speed it is not seen who computes: each says what the other cannot.
"""

import json
import os
import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ddpjob_trainer import Group, configure_logging, current_environment, process_group
from hack.training import bare, library
from hack.training.turns import STEPS, Turn, Turns
from hack.training.workload import BATCH_SIZE, Images, bind_to_core

_WARM_TURNS = 2


def main() -> None:
    """Measure, and print a pair at a time on rank 0 as JSON."""
    bind_to_core()
    environment = current_environment()
    configure_logging(environment)
    pairs = int(sys.argv[1])
    with process_group(environment) as group:
        dataset = Images((pairs + _WARM_TURNS) * STEPS * BATCH_SIZE * group.world_size)
        turns = Turns(bare.train(dataset))
        library.train(environment, group, dataset, turns)
        found = {"bare": _measured(turns.others, group), "library": _measured(turns.own, group)}
        if group.first:
            for index in range(_WARM_TURNS, pairs + _WARM_TURNS):
                pair = {loop: speeds[index] for loop, (speeds, _) in found.items()}
                pair |= {f"{loop}_processors": seconds[index] for loop, (_, seconds) in found.items()}
                print(json.dumps(pair), flush=True)
        dist.barrier()
        # Debian's torch may deadlock when it destroys the group.
        os._exit(0)


def _measured(turns: Sequence[Turn], group: Group) -> tuple[list[float], list[float]]:
    """Of each turn: samples a second of all ranks, and seconds of all ranks' processors."""
    processors = torch.tensor([turn.processor_seconds for turn in turns], dtype=torch.float64)
    dist.all_reduce(processors)
    samples = STEPS * BATCH_SIZE * group.world_size
    return [samples / turn.seconds for turn in turns], processors.tolist()


if __name__ == "__main__":
    main()
