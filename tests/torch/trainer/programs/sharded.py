"""Trainings whose optimizer's state is divided among the ranks, in one process group, each with checkpoints.

The argument is JSON: a list of [folder, epochs, options], the options those of `Optimization`, of which `asynchronous`,
`optimizer` and `plateau` are for the training. Each rank prints the parameters, and for how many it has state.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpjob_trainer import (
    Checkpoints,
    Group,
    MisuseError,
    Optimization,
    Settings,
    current_environment,
    process_group,
)
from ddpjob_trainer.checkpointing.checkpoints import SaveError
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say


class Everything(torch.optim.AdamW):
    """Has a value in its group that depends on all parameters, as optimizers without a learning rate do."""

    def step(self, closure: Any = None) -> Any:
        done = super().step(closure)
        for group in self.param_groups:
            group["size"] = sum(float(each.detach().abs().sum()) for each in group["params"])
        return done


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": model[0].parameters()}, {"params": [*model[1:].parameters()], "lr": 0.02}]
    match kind:
        case "adagrad":
            return torch.optim.Adagrad(groups, lr=0.05)
        case "everything":
            return Everything(groups, lr=0.01)
        case "lbfgs":
            return torch.optim.LBFGS(model.parameters())
    return torch.optim.AdamW(groups, lr=0.01, fused=kind == "fused")


def train(group: Group, folder: str, epochs: int, options: dict[str, Any]) -> str:
    random = torch.Generator().manual_seed(1)
    features = torch.randn(48, 6, generator=random)
    asynchronous, kind = options.pop("asynchronous", False), options.pop("optimizer", "adamw")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    optimizer = optimizer_of(kind, model)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    def loss(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        return (model(batch[0]).float() - batch[0].sum(1, keepdim=True)).square().mean()

    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=optimizer,
        loss=loss,
        dataset=TensorDataset(features),
        scheduler=plateau,
        # Always worse: the rate falls after each epoch but the first.
        evaluate=lambda _: float(loop.position.step),
        checkpoints=Checkpoints(CheckpointFolder(Path(folder)), group, asynchronous=asynchronous),
        settings=Settings(
            total_epochs=epochs,
            batch_size=24 // group.world_size,
            save_every_steps=1,
            optimization=Optimization(**options),
        ),
    )
    loop.run()
    own = sum(1 for state in optimizer.state.values() if state)
    whole = ",".join(each.double().sum().item().hex() for each in model.state_dict().values())
    return f"{own} of {len([*model.parameters()])} {optimizer.param_groups[0]['lr']} {whole}"


with process_group(current_environment()) as all_ranks:
    for name, last, chosen in json.loads(sys.argv[1]):
        try:
            said = train(all_ranks, name, last, chosen)
        except (MisuseError, SaveError) as refused:
            said = f"refused: {refused}"
        say(f"RANK {all_ranks.rank} {Path(name).name} {said}")
