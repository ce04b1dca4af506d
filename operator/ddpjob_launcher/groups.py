"""Whether the processes of a job were one process group, as far as one node can see."""

# ruff: noqa: PTH112, PTH118, PTH120, PTH123, PTH208 -- plain paths, as torch has them

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .torch_import import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .settings import Settings


def small_group(error_files: Iterable[str], settings: Settings) -> tuple[int, ...]:
    """Size of the smallest group of a node's processes, and how many the job has; () if one group may be all of them.

    Args:
        error_files: those of the node's workers, next to which each process has noted its last group.
        settings: of the node.
    """
    sizes, ranks, worlds = [], [], [1]
    for folder in {os.path.dirname(file) for file in error_files}:
        # A rank that never ran has left none.
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in names:
            if name.startswith(GROUP):
                with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as file:
                    size, rank, world = map(int, file.read().split())
                    sizes.append(size)
                    ranks.append(rank)
                    worlds.append(world)
    job = max(worlds)
    started = os.environ.get("DDPJOB_PROCS_PER_NODE")
    if sizes and started:
        # What the program spawns is in no WORLD_SIZE. A group that begins on a later node is not the only one.
        begins = settings.node and 0 in ranks
        job = max(job, settings.nodes * len(sizes) if begins else settings.nodes - 1 + min(len(sizes), int(started)))
    return (min(sizes), job) if sizes and min(sizes) < job else ()
