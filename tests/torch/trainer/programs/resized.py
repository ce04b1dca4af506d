"""Trainings one after the other, in one process group, that go on from their checkpoints with any number of ranks.

resized.py FOLDER TRAININGS [UNTIL]

TRAININGS is JSON: a list of [name, batch size, options], of which `loop` is "train", "session" or "one batch" (a loop
that takes one per step), `loader` a kind of loader, `drop_last`, `weighted` makes the loss a sum with a weight,
and the rest is of the optimization. Each ends after the step UNTIL as if its pods were lost. Each rank prints what it
has read in each step that counted, rank 0 every loss and the parameters at the end, with all their digits.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ddpjob_trainer import (
    Group,
    Listener,
    LogRecord,
    Optimization,
    Plan,
    Session,
    Settings,
    configure_logging,
    current_environment,
    process_group,
    train,
)
from ddpjob_trainer.observability.log import say

SIZE = 205
EPOCHS = 2


class Numbers(Dataset[tuple[int, torch.Tensor]]):
    """Vectors of eight numbers, each with its index."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.sin(torch.arange(8) + index)


class Streamed(IterableDataset[tuple[int, torch.Tensor]]):
    """The same, one after the other."""

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        return (Numbers()[index] for index in range(SIZE))


class Lost(Exception):  # noqa: N818 as if
    """The pods are lost."""


class Witness(Listener):
    """Prints what has counted, until the pods are lost."""

    def __init__(self, group: Group, until: int | None) -> None:
        self.group = group
        self.until = until
        self.read: list[int] = []

    def started(self, plan: Plan) -> None:
        if self.group.first:
            say(f"PLAN {plan.total_steps}")

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002 as a Listener
        if self.until is not None and step > self.until:
            raise Lost
        assert samples == len(self.read)
        say(f"RANK {self.group.rank} STEP {step} READ {self.read}")
        self.read = []

    def logged(self, record: LogRecord) -> None:
        if self.group.first:
            say(f"step {record.step}/0 | loss {record.loss.hex()} rate {record.learning_rate.hex()}")


def build_loader(kind: str, batch_size: int, *, drop_last: bool) -> Any:
    match kind:
        case "shuffled":
            return DataLoader(Numbers(), batch_size, shuffle=True, drop_last=drop_last)
        case "batches":
            lengths, begin, batches = (2, 5, 3), 0, list[list[int]]()
            while begin < SIZE:
                end = min(begin + lengths[len(batches) % 3], SIZE)
                batches.append(list(range(begin, end)))
                begin = end
            return DataLoader(Numbers(), batch_sampler=batches)
        case "stream":
            return DataLoader(Streamed(), batch_size)
    raise ValueError(kind)


def run(group: Group, folder: Path, batch_size: int, options: dict[str, Any], until: int | None) -> None:
    """One training, until it ends or is lost."""
    loop, kind = options.pop("loop", "train"), options.pop("loader", "shuffled")
    weighted, drop_last = options.pop("weighted", False), options.pop("drop_last", False)
    adam = options.pop("adam", False)
    how, witness = Optimization(**options), Witness(group, until)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = (
        torch.optim.AdamW(model.parameters(), lr=0.01)
        if adam
        else torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )

    def loss_of(model: nn.Module, batch: Any) -> Any:
        indices, numbers = batch
        assert len(indices) <= batch_size or kind == "batches"
        witness.read += indices.tolist()
        wrong = (model(numbers) - numbers.cumsum(1)[:, 3:4]).square()
        counts = (indices % 4).float().unsqueeze(1)
        return ((wrong * counts).sum(), counts.sum()) if weighted else wrong.mean()

    every_step = {"save_every_steps": 1, "log_every": 1, "seed": 3}
    if loop == "train":
        train(
            model,
            optimizer,
            loss_of,
            Numbers() if kind == "shuffled" else build_loader(kind, batch_size, drop_last=drop_last),
            Settings(
                total_epochs=EPOCHS,
                batch_size=batch_size,
                drop_last=drop_last and kind == "shuffled",
                optimization=how,
                **every_step,
            ),
            scheduler=lambda optimizer, steps: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps),
            group=group,
            checkpoint_dir=str(folder),
            name=folder.name,
            listeners=[witness],
        )
    else:
        with Session(
            group=group,
            optimization=how,
            checkpoint_dir=str(folder),
            name=folder.name,
            listeners=[witness],
            **every_step,
        ) as session:
            whole = session.model(model)
            session.keep("optimizer", optimizer)
            for step in session.steps(build_loader(kind, batch_size, drop_last=drop_last), epochs=EPOCHS):
                with step as given:
                    for batch in [given] if loop == "one batch" else given:
                        session.backward(loss_of(whole, batch))
                    session.step()
    if group.first:
        values = torch.cat([each.detach().flatten() for each in model.parameters()])
        say(f"END {' '.join(value.hex() for value in values.tolist())}")


def main() -> None:
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        for name, batch_size, options in json.loads(sys.argv[2]):
            say(f"== {name}")
            until = int(sys.argv[3]) if len(sys.argv) > 3 else None
            try:
                run(group, Path(sys.argv[1]) / name.replace(" ", "-").replace(",", ""), batch_size, options, until)
            except Lost:
                say("LOST")


if __name__ == "__main__":
    main()
