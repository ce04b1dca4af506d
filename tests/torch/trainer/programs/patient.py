"""A training in which rank 0 works longer than a collective may take: in an evaluation, a save, a load, and at the end.

patient.py FOLDER SECONDS
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from ddpjob_trainer import Checkpoints, Settings, configure_logging, current_environment, process_group
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say

FOLDER, SECONDS = Path(sys.argv[1]), float(sys.argv[2])


class Slow(CheckpointFolder):
    """On a slow volume."""

    def newest(self) -> Any:
        time.sleep(2 * SECONDS)
        return super().newest()

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> Path:
        time.sleep(2 * SECONDS)
        return super().save(step, content, write, keep=keep)


configure_logging(current_environment())
with process_group(timeout=timedelta(seconds=SECONDS)) as group:
    model = torch.nn.Linear(1, 1)

    def evaluate(_: torch.nn.Module) -> float | None:
        if not group.first:
            return None
        time.sleep(2 * SECONDS)
        return 0.5

    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=lambda model, batch: model(batch[0]).mean(),
        dataset=TensorDataset(torch.ones(4, 1)),
        evaluate=evaluate,
        checkpoints=Checkpoints(Slow(FOLDER), group),
        settings=Settings(total_epochs=1, batch_size=1),
    ).run()
    if group.first:
        time.sleep(2 * SECONDS)
say(f"RANK {group.rank} ENDED")
