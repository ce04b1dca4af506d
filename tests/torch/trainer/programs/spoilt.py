"""Trainings one after the other, in each of which rank 1 has a NaN at step 7 of 20: spoilt.py FOLDER."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpjob_trainer import Checkpoints, Group, NonFiniteError, OnNan, Settings, current_environment, process_group
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.examples.digest import parameters_digest
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say


def train(group: Group, folder: Path, policy: OnNan) -> tuple[nn.Module, int]:
    """The model, and the last step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    calls = 0

    def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        value = model(batch[0]).square().mean()
        return value * float("nan") if calls == 7 and group.rank == 1 else value

    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        loss=loss,
        dataset=TensorDataset(torch.randn(80, 4, generator=torch.Generator().manual_seed(1))),
        checkpoints=Checkpoints(CheckpointFolder(folder), group),
        settings=Settings(total_epochs=1, batch_size=2, save_every_steps=4, on_nan=policy),
    )
    loop.run()
    return model, loop.position.step


with process_group(current_environment()) as ranks:
    base = Path(sys.argv[1])
    try:
        train(ranks, base / "stop", OnNan.STOP)
    except NonFiniteError as reason:
        say(f"STOP {reason}")
    say(f"WARN {train(ranks, base / 'warn', OnNan.WARN)[1]}")
    trained, last = train(ranks, base / "skip", OnNan.SKIP)
    finite = all(bool(each.isfinite().all()) for each in trained.state_dict().values())
    say(f"SKIP {last} {'FINITE' if finite else 'SPOILT'}")
    say(f"DIGEST {parameters_digest(trained)}")
