"""What the compared programs have in common: data, model, and how they are timed."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
_SAMPLES = 16_384
_BATCH_SIZE = 32
_WARM = 50


def build_model() -> nn.Module:
    """Classifies vectors of 256 numbers."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def build_loader() -> Any:  # noqa: ANN401 torch has no types where it is not installed
    """Batches of random samples, always the same ones."""
    numbers = torch.Generator().manual_seed(0)
    inputs = torch.randn(_SAMPLES, 256, generator=numbers)
    return DataLoader(TensorDataset(inputs, inputs[:, :10].argmax(1)), _BATCH_SIZE, shuffle=True)


def folder() -> Path:
    """Where the program saves, empty at first."""
    return Path(sys.argv[1])


class Speed:
    """Steps per second of this process, without its first ones."""

    def __init__(self) -> None:
        self._steps = 0
        self._begun = 0.0

    def step(self) -> None:
        """A step is done."""
        self._steps += 1
        if self._steps == _WARM:
            self._begun = time.perf_counter()

    def say(self, program: str) -> None:
        """Print it, on rank 0."""
        seconds = time.perf_counter() - self._begun
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps({"program": program, "steps": self._steps, "speed": (self._steps - _WARM) / seconds}))
