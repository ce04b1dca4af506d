"""Trains a small model, and writes down by which process each rank has made each step, and what came of it."""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from ddpjob_trainer import Listener, Settings, Training, process_group, train

PAUSE = float(os.environ.get("STEP_SECONDS", "0.02"))


class Steps(Listener):
    """Writes a line for each step."""

    def __init__(self, rank: int) -> None:
        self._file = Path(f"steps-{rank}").open("a")  # noqa: SIM115 open for as long as the process

    def step_finished(self, step: int, *_: object) -> None:
        print(os.getpid(), step, time.time(), file=self._file, flush=True)
        time.sleep(PAUSE)


class Average(Listener):
    """A mean of a parameter, which begins with the weights of rank 0."""

    def attached(self, training: Training) -> None:
        self.parameter = next(training.model.parameters())
        self.mean = self.parameter.detach().clone()

    def step_finished(self, *_: object) -> None:
        self.mean.lerp_(self.parameter.detach(), 0.1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        self.mean.copy_(state_dict["mean"])


def build() -> nn.Module:
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64)]
    if "batchnorm" in sys.argv:
        layers.insert(1, nn.BatchNorm1d(64))
    return nn.Sequential(*layers, nn.Linear(64, 4))


def once(what: str, rank: int) -> bool:
    """Whether this rank does what the arguments ask for, the first time."""
    mark = Path(f"{what}-{rank}")
    if what not in sys.argv or dist.get_rank() != rank or mark.exists():
        return False
    mark.touch()
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def evaluate(model: nn.Module) -> float:
    if once("killed-in-evaluation", 1):
        die()
    with torch.no_grad():
        return float(model(inputs).argmax(1).eq(labels).float().mean())


def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    if "raise-later" in sys.argv and dist.get_rank() == 2 and Path("raise-later").exists():
        raise RuntimeError("now")
    found = nn.functional.cross_entropy(model(batch[0]), batch[1])
    if Path("steps-2").exists() and Path("steps-2").stat().st_size > 100:
        if once("killed-in-forward", 2):
            die()
        if once("raise-once", 2):
            raise RuntimeError("connection to the data base")
    return found


generator = torch.Generator().manual_seed(1)
inputs = torch.randn(2048, 16, generator=generator)
labels = torch.randint(0, 4, (2048,), generator=generator)

with process_group() as group:
    if "barrier-before" in sys.argv:
        dist.barrier()
    # Rank 0 decides which weights the training begins with.
    torch.manual_seed(3 + (group.rank if "average" in sys.argv else 0))
    model, average = build(), Average()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    result = train(
        model,
        optimizer,
        loss,
        TensorDataset(inputs, labels),
        Settings(total_epochs=int(os.environ.get("EPOCHS", "3")), batch_size=16, log_every=5),
        group=group,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR,
        evaluate=evaluate,
        checkpoint_dir="checkpoints" if "save" in sys.argv else None,
        listeners=[Steps(group.rank), *([average] if "average" in sys.argv else [])],
    )
    tensors = [*model.state_dict().values(), *([average.mean] if "average" in sys.argv else [])]
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors))
    batches = "".join(f"batches {int(each)} " for name, each in model.named_buffers() if name.endswith("tracked"))
    line = f"DONE rank {group.rank} steps {result.steps} {result.metrics} {batches}digest {digest.hexdigest()}\n"
    sys.stdout.write(line)
    sys.stdout.flush()

if os.environ.get("LINGERS") and os.environ["RANK"] == "3":
    # Its node ends later than the others.
    time.sleep(600)
