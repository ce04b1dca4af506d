"""What the compared loops have in common: data and model."""

import os

import torch
from torch import nn
from torch.utils.data import Dataset

BATCH_SIZE = 256
LEARNING_RATE = 1e-3
LOG_EVERY = 10
_KEPT = 8192


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):  # type: ignore[misc]  # torch has no types where it is not installed
    """Random images [1, 28, 28] and labels, which come again and again."""

    def __init__(self, count: int) -> None:
        """Args:
        count: of an epoch.
        """
        generator = torch.Generator().manual_seed(1)
        self._count = count
        self._images = torch.randn(_KEPT, 1, 28, 28, generator=generator)
        self._labels = torch.randint(10, (_KEPT,), generator=generator)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """An image and its label."""
        return self._images[index % _KEPT], self._labels[index % _KEPT]


def bind_to_core() -> None:
    """Let this process compute on one core, another one for each local rank."""
    cores = sorted(os.sched_getaffinity(0))
    place = int(os.environ.get("LOCAL_RANK", "0")) + int(os.environ.get("BENCH_FIRST_CORE", "0"))
    os.sched_setaffinity(0, {cores[place % len(cores)]})


def build_model() -> nn.Module:
    """A small CNN from images [n, 1, 28, 28] to logits [n, 10]; a step takes about 20 milliseconds on a core."""
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
