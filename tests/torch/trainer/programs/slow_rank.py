"""A training of which one rank is slower than the others in one part of its steps; says whom rank 0 names."""

import argparse
import json
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer import Listener, Optimization, Session, Settings, current_environment, process_group, train
from ddpjob_trainer.observability import slowest
from ddpjob_trainer.observability.slowest import Slowest

# Windows as long as a test can wait for several of them.
slowest.WINDOW_SECONDS = 0.1
MORE = 0.06
"""Seconds that the slow one takes in addition."""


class Named(Listener):
    """Prints each change."""

    def slowest_changed(self, slowest: Slowest | None) -> None:
        found = None if slowest is None else [slowest.rank, slowest.factor, slowest.what]
        sys.stdout.write(f"slowest {json.dumps(found)}\n")


class Numbers(Dataset[torch.Tensor]):
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.full((4,), index / 10_000)


class Backward(torch.autograd.Function):
    """Takes its time in the backward pass."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        return values.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(context.seconds)
        return gradient, None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--part", default="")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--always", type=float, default=0.01, help="seconds that every rank takes for a batch")
    parser.add_argument("--buffers", action="store_true")
    parser.add_argument("--session", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    how = Optimization(accumulate=options.accumulate)
    with process_group(current_environment()) as group:

        def seconds(part: str) -> float:
            return MORE if (options.rank, options.part) == (group.rank, part) else 0.0

        torch.manual_seed(0)
        layers = [nn.Linear(4, 4), *([nn.BatchNorm1d(4)] if options.buffers else []), nn.Linear(4, 1)]
        dataset = Numbers(seconds("data") / 2)

        def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            time.sleep(options.always + seconds("forward"))
            return Backward.apply(model(batch), seconds("backward")).square().mean()

        if options.part == "checkpoint":
            slow_saves(seconds("checkpoint"))
        if options.session:
            with Session(group=group, log_every=2, optimization=how, listeners=[Named()]) as session:
                model = session.model(nn.Sequential(*layers))
                session.keep("optimizer", torch.optim.SGD(model.parameters(), lr=0.01))
                for step in session.steps(DataLoader(dataset, batch_size=2), epochs=1, max_steps=options.steps):
                    with step as batch:
                        for each in [batch] if options.accumulate == 1 else batch:
                            session.backward(loss(model, each))
                        session.step()
            return
        model = nn.Sequential(*layers)
        train(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            loss,
            dataset,
            Settings(
                max_steps=options.steps,
                batch_size=2,
                log_every=2,
                save_every_steps=1 if options.part == "checkpoint" else None,
                optimization=how,
            ),
            checkpoint_dir=options.checkpoints if options.part == "checkpoint" else None,
            listeners=[Named()],
            group=group,
        )


def slow_saves(seconds: float) -> None:
    """Rank 0 writes slowly."""
    from ddpjob_trainer.checkpointing import checkpoints  # noqa: PLC0415 only here

    write = checkpoints.write_tensors

    def slowly(*arguments: Any) -> None:
        time.sleep(seconds / len(checkpoints.FILES))
        write(*arguments)

    checkpoints.write_tensors = slowly


if __name__ == "__main__":
    main()
