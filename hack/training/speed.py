"""Samples a second of the bare loop and of the library's, by turns in one process group.

    torchrun --nproc-per-node 2 -m hack.training.speed PAIRS

Turns of a second or two in the same processes on the same cores: what else the machine does then harms both alike,
while runs of their own, some seconds apart, differ by more than what is to be measured.
"""

import gc
import json
import os
import sys

import torch.distributed as dist

from ddpjob_trainer import configure_logging, current_environment, process_group
from hack.training import bare, library
from hack.training.workload import Span, bind_to_core, build_data


def main() -> None:
    """Measure, and print a pair at a time on rank 0 as JSON; with the order reversed every other time."""
    bind_to_core()
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        dataset = build_data(group.world_size)

        def speed(loop: str) -> float:
            # The garbage of one loop is not to be collected at the expense of the other.
            gc.collect()
            dist.barrier()
            span = Span()
            if loop == "bare":
                bare.train(dataset, span)
            else:
                library.train(environment, group, dataset, span)
            return span.samples_per_second(group.world_size)

        # Once each to warm up what belongs to the process.
        speed("bare")
        speed("library")
        for index in range(int(sys.argv[1])):
            order = ("bare", "library") if index % 2 == 0 else ("library", "bare")
            pair = {loop: speed(loop) for loop in order}
            if group.first:
                print(json.dumps(pair), flush=True)
        dist.barrier()
        # Debian's torch may deadlock when it destroys the group.
        os._exit(0)


if __name__ == "__main__":
    main()
