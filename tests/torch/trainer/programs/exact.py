"""Trainings that are interrupted and resumed in one process group, each against the same one without interruption.

The argument is JSON: a list of [name, options], the options those of `Optimization`; `sparse` makes the embedding's
gradients sparse. For each name and interruption rank 0 prints in which steps the losses differ.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpjob_trainer import (
    Checkpoints,
    Group,
    Listener,
    LogRecord,
    Optimization,
    Settings,
    configure_logging,
    current_environment,
    process_group,
)
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say

INTERRUPTED_AFTER = (1, 5)
"""Steps: before the first time that DistributedDataParallel may pack its buckets again, and long after."""


class Interrupted(Exception):  # noqa: N818 a test ends a training with it
    """Ends a training on all ranks."""


class Heard(Listener):
    """Remembers all losses, and interrupts the training after a step."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.losses: dict[int, str] = {}

    def logged(self, record: LogRecord) -> None:
        self.losses[record.step] = record.loss.hex()

    def checkpoint_saved(self, step: int, _pause: float) -> None:
        if step == self.last:
            raise Interrupted


class Words(nn.Module):
    """Its parameters are not used in the order in which they are created."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.out = nn.Linear(24, 1)
        self.hidden = nn.Linear(12, 24)
        self.frozen = nn.Linear(24, 24).requires_grad_(requires_grad=False)
        self.norm = nn.BatchNorm1d(12)
        self.words = nn.Embedding(11, 12, sparse=sparse)
        self.spare = nn.Linear(1, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.hidden(self.norm(self.words(words).mean(1))))
        found: torch.Tensor = self.out(self.frozen(nn.functional.dropout(hidden, 0.2, self.training)))
        return found + 0 * self.spare(found)


def train(
    group: Group, folder: Path, options: dict[str, object], last: int | None = None
) -> tuple[dict[int, str], str]:
    """The losses, and the parameters."""
    torch.manual_seed(0)
    words = torch.randint(11, (96, 5))
    options = dict(options)
    sparse = bool(options.pop("sparse", False))
    model = Words(sparse=sparse)
    changed = [each for each in model.parameters() if each.requires_grad]
    heard = Heard(last)
    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD(changed, lr=0.1, momentum=0.0 if sparse else 0.9),
        loss=lambda model, batch: (model(batch[0]).float() - batch[1]).square().mean(),
        dataset=TensorDataset(words, torch.sin(words.sum(1, keepdim=True).float())),
        checkpoints=Checkpoints(CheckpointFolder(folder), group),
        settings=Settings(
            total_epochs=2,
            batch_size=4,
            log_every=1,
            save_every_steps=1,
            optimization=Optimization(**options),  # type: ignore[arg-type]
        ),
        listeners=(heard,),
    )
    try:
        loop.run()
    except Interrupted:
        return heard.losses, ""
    return heard.losses, ",".join(str(each.double().sum().item().hex()) for each in model.state_dict().values())


def main() -> None:
    """Train as the argument says."""
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group, tempfile.TemporaryDirectory() as temporary:
        for name, options in json.loads(sys.argv[1]):
            folder = Path(temporary) / name.replace(" ", "-")
            whole, parameters = train(group, folder / "whole", options)
            for last in INTERRUPTED_AFTER:
                first, _ = train(group, folder / str(last), options, last)
                second, resumed_parameters = train(group, folder / str(last), options)
                if group.first:
                    found = {**first, **second}
                    differs = [step for step in whole if whole[step] != found.get(step)]
                    assert min(second) == last + 1
                    same = resumed_parameters == parameters
                    say(f"== {name}, interrupted after {last}: differs {differs}, parameters same {same}")


if __name__ == "__main__":
    main()
