"""A training with the options of a step from the command line, as JSON; prints the losses with all their digits."""

import json
import os
import sys
from collections.abc import Sequence

import torch
from torch.utils.data import TensorDataset

from ddpjob_trainer import (
    EpochLines,
    Exchange,
    Optimization,
    Settings,
    Trainer,
    checkpoints,
    configure_logging,
    current_environment,
    process_group,
)
from ddpjob_trainer.log import say

options = json.loads(sys.argv[1])
batch_size = int(sys.argv[2])
environment = current_environment()
configure_logging(environment)
with process_group(environment) as group:
    random = torch.Generator().manual_seed(1)
    features = torch.randn(512, 16, generator=random)
    targets = features.sum(1, keepdim=True) / 4
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def loss(model: torch.nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        out = model(batch[0])
        if group.first:
            say(f"computed in {out.dtype}")
        return torch.nn.functional.mse_loss(out.float(), batch[1])

    Trainer(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=loss,
        dataset=TensorDataset(features, targets),
        checkpoints=checkpoints(environment, Exchange(group.device)),
        settings=Settings(
            total_epochs=int(os.environ.get("EPOCHS", "2")),
            batch_size=batch_size,
            log_every=1,
            optimization=Optimization(**options),
        ),
        listeners=(EpochLines(group, batch_size),),
    ).run()
