"""The same training as in bare.py by the library, with what the operator asks of it: progress, metrics, watchdog."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.data import Dataset

from ddpjob_trainer import EpochLines, Group, Listener, Settings, Telemetry
from ddpjob_trainer.loop.training_loop import TrainingLoop
from hack.bench.training.turns import Turns
from hack.bench.training.workload import BATCH_SIZE, LEARNING_RATE, LOG_EVERY, build_model


class Timed(Listener):
    """Passes steps on to the clock."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def step_finished(self, step: int, _samples: int, _seconds: float, _data_seconds: float) -> None:
        """A step is done."""
        self._turns.step_finished(step)


def _loss(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def train(group: Group, dataset: Dataset[tuple[torch.Tensor, torch.Tensor]], turns: Turns) -> None:
    """Train for one epoch."""
    model = build_model()
    telemetry = Telemetry(group)
    TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE),
        loss=_loss,
        dataset=dataset,
        settings=Settings(total_epochs=1, batch_size=BATCH_SIZE, log_every=LOG_EVERY),
        listeners=(EpochLines(group, BATCH_SIZE), telemetry, Timed(turns)),
    ).run()
    telemetry.close()
