"""The same training by `train` and by a loop of one's own, whose every sample that was read is printed.

own_loop.py FOLDER LOADER [--by-train] [--batch-size N] [--accumulate N] [--epochs N] [--stop-at STEP] [--lose STEP]
    [--unshared] [--save-every-steps N] [--max-steps N] [--evaluate] [--slow SECONDS] [--keep-best]

--stop-at sends SIGTERM to each rank within a step, at the latest the first: after it the ranks agree less often. --lose
loses a step once, after its gradients were computed. With --evaluate rank 0 evaluates alone after each step, and with
--slow for so long that a collective of the others would fail.
"""

import argparse
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, WeightedRandomSampler

from ddpjob_trainer import (
    Evaluation,
    Listener,
    Optimization,
    Session,
    Settings,
    StepLost,
    configure_logging,
    current_environment,
    process_group,
    train,
)
from ddpjob_trainer.examples.digest import parameters_digest
from ddpjob_trainer.observability.log import say

SIZE = 51


class Numbers(Dataset[tuple[int, torch.Tensor]]):
    """Vectors of four numbers, each with its index."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.sin(torch.arange(4) + index)


class Streamed(IterableDataset[tuple[int, torch.Tensor]]):
    """The same, in an order that is drawn while it is read; of all ranks, or of one."""

    def __init__(self, part: slice) -> None:
        self.part = part

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        waiting = list(range(SIZE))[self.part]
        while waiting:
            yield Numbers()[waiting.pop(random.randrange(len(waiting)))]  # noqa: S311 not used for security


class ByTurns(Sampler[list[int]]):
    """Batches of other sizes, in an order that Python's generator decides."""

    def __iter__(self) -> Iterator[list[int]]:
        batches = [list(range(begin, min(begin + 2 + begin % 3, SIZE))) for begin in (0, 2, 6, 9, 11, 15, 18, 20)]
        random.shuffle(batches)
        yield from batches


class Halves(Sampler[int]):
    """Only every second sample, in an order that torch's generator decides."""

    def __len__(self) -> int:
        return SIZE // 2

    def __iter__(self) -> Iterator[int]:
        return iter((2 * torch.randperm(SIZE // 2)).tolist())


def build_loader(kind: str, batch: int, part: slice) -> Any:  # noqa: PLR0911 one for each kind
    match kind:
        case "shuffled":
            return DataLoader(Numbers(), batch, shuffle=True)
        case "in-order":
            return DataLoader(Numbers(), batch)
        case "workers":
            return DataLoader(Numbers(), batch, shuffle=True, num_workers=1, persistent_workers=True)
        case "sampler":
            return DataLoader(Numbers(), batch, sampler=Halves())
        case "weighted":
            own = torch.Generator()
            return DataLoader(Numbers(), batch, sampler=WeightedRandomSampler([1.0] * SIZE, 20, generator=own))
        case "batches":
            return DataLoader(Numbers(), batch_sampler=ByTurns())
        case "stream":
            return DataLoader(Streamed(part), batch)
        case "stream-workers":
            return DataLoader(Streamed(part), batch, num_workers=1)
    return build_stateful_loader(kind, batch, part)


def build_stateful_loader(kind: str, batch: int, part: slice) -> Any:
    # Only full runs have it.
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

    match kind:
        case "stateful":
            return StatefulDataLoader(Numbers(), batch, shuffle=True)
        case "stateful-workers":
            return StatefulDataLoader(Numbers(), batch, shuffle=True, num_workers=2)
        case "stateful-stream":
            return StatefulDataLoader(Streamed(part), batch)
    raise ValueError(kind)


class Seen(nn.Module):
    """Remembers in a buffer what it has seen, as BatchNorm does, but also of a single sample."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(batch.detach().mean(0))
        return batch + 0.1 * self.seen.clone()


class Average:
    """An exponential mean of a parameter: further state."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.parameter = parameter
        self.mean = parameter.detach().clone()

    def update(self) -> None:
        self.mean.lerp_(self.parameter.detach(), 0.25)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        self.mean.copy_(state_dict["mean"])


class Witness(Listener):
    """Prints what has counted."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.read: list[int] = []

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:
        assert 0 <= data_seconds <= seconds
        assert samples == len(self.read)
        say(f"RANK {self.rank} STEP {step} READ {self.read}")
        self.read = []

    def measured(self, evaluation: Evaluation) -> None:
        if evaluation.best:
            say(f"RANK {self.rank} BEST {evaluation.step}")


def evaluate(session: Session, model: nn.Module, step: int, options: argparse.Namespace) -> None:
    if not options.evaluate:
        return
    first = session.group.first
    with session.evaluation():
        if first:
            model(torch.ones(2, 4))
            time.sleep(options.slow)
    if options.keep_best:
        # The other rank would choose the first one.
        session.evaluated(float(step == 3) if first else -step)
    else:
        session.evaluated(0.5 if first else None)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("loader")
    parser.add_argument("--by-train", action="store_true")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--lose", type=int)
    parser.add_argument("--unshared", action="store_true")
    parser.add_argument("--save-every-steps", type=int)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--keep-best", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    environment = current_environment()
    options = parsed(environment.arguments)
    configure_logging(environment)
    timeout = timedelta(seconds=options.slow / 2) if options.slow else None
    with process_group(environment, timeout=timeout) as group:
        witness = Witness(group.rank)
        part = slice(group.rank, None, group.world_size) if options.unshared else slice(None)
        loader = build_loader(options.loader, options.batch_size, part)
        how = Optimization(accumulate=options.accumulate, clip_norm=1.0)

        def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
            indices, numbers = batch
            witness.read += indices.tolist()
            return ((model(numbers) - numbers.sum(1, keepdim=True)) ** 2).mean()

        with Session(
            group=group,
            seed=3,
            optimization=how,
            log_every=1,
            checkpoint_dir=options.folder,
            save_every_steps=options.save_every_steps,
            keep_best="max" if options.keep_best else None,
            listeners=[witness],
        ) as session:
            net = nn.Sequential(nn.Linear(4, 8), Seen(), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
            if options.by_train:
                train(
                    net,
                    torch.optim.AdamW(net.parameters(), lr=0.01),
                    loss_of,
                    Numbers() if options.loader == "shuffled" else loader,
                    Settings(total_epochs=options.epochs, batch_size=options.batch_size, seed=3, optimization=how),
                    group=group,
                )
                say(f"RANK {group.rank} DIGEST {parameters_digest(net)}")
                return
            model = session.model(net)
            optimizer = session.keep("optimizer", torch.optim.AdamW(model.parameters(), lr=0.01))
            average = session.keep("average", Average(net[0].weight))
            lost = False
            for step in session.steps(loader, epochs=options.epochs, max_steps=options.max_steps):
                with step as given:
                    if step.number == options.stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                    for batch in [given] if options.accumulate == 1 else given:
                        session.backward(loss_of(model, batch))
                    if step.number == options.lose and not lost:
                        lost, witness.read = True, []
                        raise StepLost
                    session.step()
                    average.update()
                evaluate(session, model, step.number, options)
            assert len(optimizer.state) > 0
            say(f"RANK {group.rank} DIGEST {parameters_digest(net)}")
            say(f"RANK {group.rank} AVERAGE {average.mean.double().sum().item().hex()}")


if __name__ == "__main__":
    main()
