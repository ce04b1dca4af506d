"""What the compared loops have in common: data, model, and the span of steps that is timed."""

import os
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import TensorDataset

BATCH_SIZE = 128
STEPS = 60
"""Of a timed training: one epoch."""
LEARNING_RATE = 1e-3
LOG_EVERY = 10
_WARM_STEPS = 10


@dataclass
class Span:
    """Times the steps of a training but the first, which warm up."""

    begun: float = 0.0
    seconds: float = 0.0

    def step_finished(self, step: int) -> None:
        """Look at the clock where the span begins and ends."""
        if step == _WARM_STEPS:
            self.begun = time.perf_counter()
        elif step == STEPS:
            self.seconds = time.perf_counter() - self.begun

    def samples_per_second(self, world_size: int) -> float:
        """Of all ranks together."""
        return (STEPS - _WARM_STEPS) * BATCH_SIZE * world_size / self.seconds


def bind_to_core() -> None:
    """Let this process compute on one core, another one for each local rank."""
    cores = sorted(os.sched_getaffinity(0))
    place = int(os.environ.get("LOCAL_RANK", "0")) + int(os.environ.get("BENCH_FIRST_CORE", "0"))
    os.sched_setaffinity(0, {cores[place % len(cores)]})


def build_model() -> nn.Module:
    """A small CNN from images [n, 1, 28, 28] to logits [n, 10]; a step takes some tens of milliseconds on a core."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def build_data(world_size: int) -> TensorDataset:
    """Random images and labels for `STEPS` steps of all ranks."""
    count = STEPS * BATCH_SIZE * world_size
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 1, 28, 28, generator=generator)
    return TensorDataset(images, torch.randint(10, (count,), generator=generator))
