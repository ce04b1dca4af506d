"""Trainings one after the other, each with options of a step of its own, in one process group.

The argument is JSON: a list of [name, batch size, options], of which `samples` is the size of the data set, `weighted`
makes the loss a sum with a weight, times this number, and `smaller` divides the loss, for the same steps.
Rank 0 prints the name before the training's losses. What all ranks refuse is printed.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import TensorDataset

from ddpjob_trainer import (
    Checkpoints,
    EpochLines,
    Group,
    MisuseError,
    Optimization,
    Settings,
    configure_logging,
    current_environment,
    process_group,
)
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say

ENVIRONMENT = current_environment()


def train(group: Group, batch_size: int, options: dict[str, object]) -> None:
    """Train a small model, the same at the beginning of each training."""
    random = torch.Generator().manual_seed(1)
    samples = options.pop("samples", 512)
    features = torch.randn(samples, 16, generator=random)
    targets = features.sum(1, keepdim=True) / 4
    # As different as the lengths of texts; some count nothing.
    weights = torch.randint(0, 9, (samples, 1), generator=random).float()
    weighted, smaller = options.pop("weighted", 0), options.pop("smaller", 1)
    wrong = options.pop("wrong", None)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def loss(model: torch.nn.Module, batch: Sequence[torch.Tensor]) -> Any:
        out = model(batch[0])
        if group.first:
            say(f"computed in {out.dtype}")
        if wrong == "kind" and group.rank == 1:
            return out.mean()
        if wrong == "weight" and group.rank == 1:
            return out.sum(), -1
        if weighted:
            return ((out.float() - batch[1]).square() * batch[2]).sum() * weighted / smaller, batch[2].sum() * weighted
        return torch.nn.functional.mse_loss(out.float(), batch[1])

    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1 * smaller),
        loss=loss,
        dataset=TensorDataset(features, targets, weights),
        checkpoints=Checkpoints.of_job(group),
        settings=Settings(
            total_epochs=int(os.environ.get("EPOCHS", "2")),
            batch_size=batch_size,
            log_every=1,
            optimization=Optimization(**options),
        ),
        listeners=(EpochLines(group, batch_size),),
    ).run()


configure_logging(ENVIRONMENT)
with process_group(ENVIRONMENT) as all_ranks:
    for name, size, chosen in json.loads(sys.argv[1]):
        if all_ranks.first:
            say(f"== {name}")
        try:
            train(all_ranks, size, chosen)
        except MisuseError as refused:
            say(f"[rank {all_ranks.rank}] refused: {refused}")
