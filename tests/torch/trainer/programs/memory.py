"""Measures how much memory saves and a resume take on each rank, beyond the state of the training.

memory.py FOLDER MIB save|resume [divided] prints `RANK <rank> <what> <bytes at the peak> <bytes of the state>`
"""

import gc
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Self

import torch
from torch import nn

from ddpjob_trainer import Checkpoints, Position, TrainingState, current_environment, process_group
from ddpjob_trainer.loop.sharding import Sharding

WIDTH = 2048
_PARTS = 3
"""AdamW keeps two tensors for each parameter."""


def resident(name: str) -> int:
    """A number of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


class Peak:
    """The most memory that the body had in addition to what there was before."""

    def __enter__(self) -> Self:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self.before = resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = resident("VmHWM") - self.before


def main() -> None:
    environment = current_environment()
    folder, mebibytes, what, *divided = environment.arguments
    layers = int(mebibytes) * 2**20 // (_PARTS * WIDTH * WIDTH * 4)
    sharding: dict[int, Sharding] = {}
    with process_group(environment) as group:

        def make() -> TrainingState:
            model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            if not divided:
                return TrainingState(model, optimizer)
            sharding[0] = Sharding(optimizer, rank=group.rank, world_size=group.world_size)
            return TrainingState(model, optimizer, owners=sharding[0].owners())

        def report(name: str, peak: Peak) -> None:
            state = layers * _PARTS * WIDTH * WIDTH * 4
            sys.stdout.write(f"RANK {group.rank} {name} {peak.bytes} {state}\n")

        # Only the first collective sets up connections and buffers.
        group.sum(1.0)
        if what == "save":
            state = make()
            for each in state.model.parameters():
                each.grad = torch.ones_like(each)
            with sharding[0].own() if divided else nullcontext():
                state.optimizer.step()
            state.optimizer.zero_grad()
            for name in ("synchronous", "asynchronous"):
                checkpoints = Checkpoints.of_job(group, folder, asynchronous=name == "asynchronous", keep_last=1)
                for step in (1, 2):
                    with Peak() as peak:
                        checkpoints.save(state, Position(0, 0, step))
                        checkpoints.finish()
                    report(f"{name}-{step}", peak)
        else:
            with Peak() as peak:
                state = make()
                assert Checkpoints.of_job(group, folder).resume(state) == Position(0, 0, 2)
            report("resume", peak)
            with Peak() as peak:
                Checkpoints.of_job(group, folder).resume(state)
            report("again", peak)


if __name__ == "__main__":
    main()
