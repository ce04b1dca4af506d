"""Forms one process group after the other in the same processes, as if a rank were replaced each time.

regroups.py TIMES prints `RANK <rank> <regroups> <descriptors> <threads> <sum>` after some of them and at the end.
"""

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from ddpjob_trainer.process.meeting import GENERATION, Meeting, Overtaken
from ddpjob_trainer.process.regrouping import Regrouping

SETTLED = 50
"""Regroups after which everything that is opened once has been."""


def main() -> None:
    times = int(sys.argv[1])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world_size, rank == 0)
    store, board = dist.TCPStore(*place), dist.TCPStore(*place[:3], is_master=False)

    def form(prefix: str, timeout: timedelta | None) -> None:
        keys = dist.PrefixStore(prefix, store)
        dist.init_process_group("gloo", store=keys, rank=rank, world_size=world_size, timeout=timeout)

    # With launchers, the store is in a process of its own. Here rank 0 has it, and would take what connects to it
    # meanwhile for a part of the group.
    board.add("connected", 1)
    while board.add("connected", 0) < world_size:
        time.sleep(0.001)
    regrouping = Regrouping(Meeting(board, rank=rank, world_size=world_size), form, None)
    total = 0.0
    for regroups in range(times + 1):
        regrouping.join()
        one = torch.ones(1000)
        dist.all_reduce(one)
        total += float(one.sum())
        if regroups in (SETTLED, times):
            files, threads = (len(list(Path("/proc/self", kind).iterdir())) for kind in ("fd", "task"))
            sys.stdout.write(f"RANK {rank} {regroups} {files} {threads} {total:.0f}\n")
        with suppress(Overtaken):
            regrouping.meet("the sum is there")
        # As the launcher does once a rank is gone.
        if rank == 0 and regroups < times:
            board.add(GENERATION, 1)
        while regroups < times and not regrouping.is_overtaken():
            time.sleep(0.001)
        regrouping.leave()
    board.add("done", 1)
    # The store goes with rank 0.
    while rank == 0 and board.add("done", 0) < world_size:
        time.sleep(0.001)


if __name__ == "__main__":
    main()
