"""Trains a small model by a loop of its own, and writes down which process has made each step with which samples.

own_surviving.py [WORD...]: what happens to which rank is in the words that are asked for below.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ddpjob_trainer import Listener, Optimization, Session
from ddpjob_trainer.process.activity import Activity

PAUSE = float(os.environ.get("STEP_SECONDS", "0.02"))
EPOCHS = int(os.environ.get("EPOCHS", "2"))
WORDS = set(sys.argv[1:])
BATCH = 4 if "accumulate" in WORDS else 16
RANK = int(os.environ["RANK"])


class Steps(Listener):
    """Writes a line for each step, and an average of a parameter, which it keeps."""

    def __init__(self) -> None:
        self._file = Path(f"steps-{RANK}").open("a")  # noqa: SIM115 open for as long as the process
        self.model: nn.Module | None = None
        self.mean = torch.zeros(())

    def attached(self, training: Any) -> None:
        self.model = training.model
        self.mean = next(training.model.parameters()).detach().clone()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        self.mean.copy_(state_dict["mean"])

    def step_finished(self, step: int, *_: object) -> None:
        if self.model is not None:
            self.mean.lerp_(next(self.model.parameters()).detach(), 0.1)
        print(os.getpid(), step, *READ, file=self._file, flush=True)
        time.sleep(PAUSE)

    def activity_changed(self, activity: Activity) -> None:
        if activity is Activity.CHECKPOINT and once("killed-in-save", 1):
            die()


class Queue:
    """The newest outputs of the model, as contrastive learning keeps them: it changes before the parameters do."""

    def __init__(self, size: int) -> None:
        self.rows, self.count = torch.zeros(size, 4), 0

    def push(self, outputs: torch.Tensor) -> None:
        # A collective of the program, in which a loss may be noticed.
        rows = outputs.detach().mean(0, keepdim=True)
        dist.all_reduce(rows)
        if "unseen" in WORDS:
            # As many programs do it: nothing counts this as a change.
            self.rows.data.copy_(self.rows.data.roll(1, 0))
            self.rows.data[0] = rows[0]
        else:
            self.rows = torch.cat([rows, self.rows[:-1]])
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self.count = state_dict["rows"].clone(), state_dict["count"]


class Average:
    """An exponential mean of the parameters, which changes after them."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.means = [each.detach().clone() for each in model.parameters()]

    def update(self) -> None:
        for mean, each in zip(self.means, self.model.parameters(), strict=True):
            mean.lerp_(each.detach(), 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {"means": self.means}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for mean, each in zip(self.means, state_dict["means"], strict=True):
            mean.copy_(each)


class Streamed(IterableDataset[Any]):
    """The samples one after the other."""

    def __iter__(self) -> Any:
        yield from zip(inputs, labels, numbers, strict=True)


READ: list[int] = []


def once(what: str, *ranks: int, step: int = 0) -> bool:
    """Whether this rank does what the arguments ask for, the first time."""
    mark = Path(f"{what}-{RANK}")
    if what not in WORDS or RANK not in ranks or mark.exists() or (step and step < int(os.environ.get("FROM", "5"))):
        return False
    mark.touch()
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def digest(tensors: Any) -> str:
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()[:12]


def build() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.Linear(64, 4)
    )


def evaluate(session: Session, model: nn.Module, number: int) -> None:
    alone = "together" not in WORDS
    with session.evaluation():
        if number > 1 and once("killed-in-evaluation", 0 if "first" in WORDS else 1):
            die()
        correct = 0.0
        if session.group.first or not alone:
            correct = float(model(inputs).argmax(1).eq(labels).float().mean())
            if PAUSE:
                # The others come to the end of their evaluation meanwhile.
                time.sleep(1)
        if not alone:
            correct = session.group.sum(correct)[0] / session.group.world_size
    session.evaluated(correct if session.group.first or not alone else None)


generator = torch.Generator().manual_seed(1)
inputs = torch.randn(1024, 16, generator=generator)
labels = torch.randint(0, 4, (1024,), generator=generator)
numbers = torch.arange(1024)


def main() -> None:  # noqa: C901, PLR0912, PLR0915 one case for each word, in the order of a loop
    how = Optimization(
        accumulate=4 if "accumulate" in WORDS else 1,
        precision="fp16" if "fp16" in WORDS else "fp32",
        compression="fp16" if "compress" in WORDS else None,
    )
    with Session(
        optimization=how,
        log_every=5,
        save_every_steps=7 if "save" in WORDS else None,
        keep_best="max" if "best" in WORDS else None,
        checkpoint_dir="checkpoints" if WORDS & {"save", "best"} else None,
        listeners=[Steps()],
    ) as session:
        model = session.model(build())
        inner = model.module
        optimizer = session.keep("optimizer", torch.optim.AdamW(model.parameters(), lr=1e-2))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
        if "unkept" not in WORDS:
            session.keep("scheduler", scheduler)
        if "other-rates" in WORDS:
            # A schedule of the program, of which nothing is known.
            scheduler, rate = None, [1e-2]
        queue = session.keep("queue", Queue(100_000 if "large" in WORDS else 8))
        average = session.keep("average", Average(inner))
        if "barrier-before" in WORDS:
            dist.barrier()
        if "resume-first" in WORDS:
            session.resume()
        data = TensorDataset(inputs, labels, numbers)
        loader: Any = DataLoader(Streamed(), BATCH) if "stream" in WORDS else DataLoader(data, BATCH, shuffle=True)
        if "once" in WORDS:
            loader = iter(loader)
        for step in session.steps(loader, epochs=EPOCHS):
            with step as given:
                READ.clear()
                for features, targets, which in given if how.accumulate > 1 else [given]:
                    if once("killed-before-backward", 2, step=step.number):
                        die()
                    if step.number >= 5 and Path("steps-2").exists() and once("raise-once", 2):
                        raise RuntimeError("expected another shape")
                    with session.autocast():
                        outputs = model(features)
                    queue.push(outputs.float())
                    loss = nn.functional.cross_entropy(outputs.float(), targets)
                    loss = loss + 1e-3 * (outputs.float().mean(0) - queue.rows[1]).square().sum()
                    READ.extend(which.tolist())
                    if once("killed-in-backward", 2, step=step.number) or once("both", 1, 2, step=step.number):
                        # Once the gradients of the last layer are known.
                        outputs.register_hook(lambda _: die())
                    if "perturb" in WORDS:
                        with torch.no_grad():
                            next(model.parameters()).data.add_(1e-3)
                    session.backward(loss)
                    if "perturb" in WORDS:
                        next(model.parameters()).data.sub_(1e-3)
                if once("killed-in-step", 2, step=step.number):
                    optimizer.register_step_post_hook(lambda *_: die())
                session.step()
                average.update()
                if scheduler is not None:
                    scheduler.step()
                else:
                    rate[0] *= 0.95
                    optimizer.param_groups[0]["lr"] = rate[0]
            if step.ends_epoch or (step.committed and step.number % 8 == 0 and "often" in WORDS):
                evaluate(session, model, step.number)
            if step.committed and "sum-after" in WORDS:
                session.group.sum(1.0)
        metric = sorted(Path("checkpoints").glob("**/step-*")) if "best" in WORDS else []
        state = (
            f"model {digest(inner.parameters())} {int(inner[1].num_batches_tracked)} average {digest(average.means)} "
        )
        state += f"queue {digest([queue.rows])} {queue.count} rate {optimizer.param_groups[0]['lr']:.9f} "
        state += f"kept {[file.name for file in metric]}"
        if RANK == 0:
            sys.stdout.write(f"BUFFERS {digest(inner.buffers())}\n")
        sys.stdout.write(f"DONE rank {RANK} steps {session.position.step} {state}\n")
        sys.stdout.flush()


main()
