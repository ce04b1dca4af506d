"""Trainings of a number of steps, with evaluations, a schedule, an average and a best checkpoint, in one group.

by_steps.py ENDS...
by_steps.py --in FOLDER [--die-at STEP]

Each is interrupted at these ends and resumed, and compared with the same one without interruption; rank 0 prints what
differs. Every rank also checks what it gathers for each sample. With --in there is one training, of which rank 0 prints
all that was found; its last rank is killed after a step.
"""

import os
import random
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DistributedSampler, TensorDataset

from ddpjob_trainer import (
    Checkpoints,
    Evaluation,
    Group,
    Listener,
    LogRecord,
    Result,
    Settings,
    Stopped,
    Training,
    configure_logging,
    current_environment,
    process_group,
)
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say

SIZE = 54
STEPS = 17


class Interrupted(Exception):  # noqa: N818 a test ends a training with it
    """Ends a training on all ranks."""


class Average(Listener):
    """An average of the weights, which checkpoints keep."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.mean: torch.Tensor | None = None

    def attached(self, training: Training) -> None:
        self.model = training.model
        self.mean = self._weights()

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002
        assert self.mean is not None
        self.mean.lerp_(self._weights(), 0.25)

    def _weights(self) -> torch.Tensor:
        assert self.model is not None
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert self.mean is not None
        self.mean.copy_(state_dict["mean"])


class Heard(Listener):
    """Remembers all that was found, and interrupts the training where it is told to."""

    def __init__(self, ends: str) -> None:
        self.ends = ends
        self.found: dict[str, str] = {}

    def logged(self, record: LogRecord) -> None:
        self.found[f"loss {record.step}"] = f"{record.loss.hex()} {record.learning_rate.hex()}"

    def measured(self, evaluation: Evaluation) -> None:
        name = f"evaluation {evaluation.step}"
        assert name not in self.found, "evaluated twice"
        self.found[name] = str(replace(evaluation, metrics={each: v.hex() for each, v in evaluation.metrics.items()}))
        self.end(f"measured {evaluation.step}")

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002
        self.end(f"step {step}")
        if self.ends == f"die {step}" and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ends == f"stop {step}":
            os.kill(os.getpid(), signal.SIGTERM)

    def checkpoint_saved(self, step: int, _pause: float) -> None:
        self.end(f"saved {step}")

    def end(self, here: str) -> None:
        if self.ends == here:
            raise Interrupted


def train(
    group: Group, folder: Path, ends: str = "", *, evaluates: bool = True, **options: Any
) -> tuple[dict[str, str], Result | None]:
    """All that was found, with the parameters at the end, and the result; of an interrupted training none."""
    torch.manual_seed(group.rank)
    numbers = torch.sin(torch.arange(4.0 * SIZE)).reshape(SIZE, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
    model[1].eval().requires_grad_(requires_grad=False)
    average, heard = Average(), Heard(ends)

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not any(each.training for each in model.modules())
        noise = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002, S311
        own = (model(numbers[group.rank :: group.world_size]) - 0.3).abs().squeeze(1)
        model.train()
        wrong = group.gather_samples(own, SIZE)
        return {"wrong": float(wrong.mean()), "noise": noise if group.first else 0.0}

    settings: dict[str, Any] = {"max_steps": STEPS, "save_every": 99, "save_every_steps": 3, **options}
    if evaluates:
        settings = {"evaluate_every_steps": 2, "metric": "wrong", "keep_best": "min", **settings}
    loop = TrainingLoop(
        group=group,
        model=model,
        optimizer=torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.2, momentum=0.5),
        loss=lambda model, batch: (model(batch[0]) - torch.rand(()) - batch[0].sum(1, keepdim=True)).square().mean(),
        dataset=TensorDataset(numbers),
        scheduler=lambda optimizer, steps: OneCycleLR(optimizer, 0.3, total_steps=steps),
        evaluate=evaluate if evaluates else None,
        checkpoints=Checkpoints(CheckpointFolder(folder, keep_last=1), group),
        settings=Settings(batch_size=4, log_every=1, seed=5, **settings),
        listeners=(heard, average),
    )
    try:
        result = loop.run()
    except (Interrupted, Stopped):
        return heard.found, None
    for name, each in (*model.state_dict().items(), ("average", average.mean)):
        assert each is not None
        heard.found[name] = float(each.double().sum()).hex()
    return heard.found, result


def compare(group: Group, folder: Path, whole: tuple[dict[str, str], Result | None], *ends: str, **how: Any) -> None:
    """Train to each of these ends in turn, and then to the end."""
    found: dict[str, str] = {}
    for each in ends:
        part, result = train(group, folder, each, **how)
        assert result is None, f"not interrupted: {each}"
        found |= part
    part, result = train(group, folder, **how)
    found |= part
    assert result is not None
    assert whole[1] is not None
    same = replace(result, samples=0, resumed_from=None) == replace(whole[1], samples=0, resumed_from=None)
    differs = [name for name in {**whole[0], **found} if whole[0].get(name) != found.get(name)]
    for name in differs:
        say(f"RANK {group.rank} {name}: {found.get(name)} instead of {whole[0].get(name)}")
    if group.first:
        say(f"== {' and '.join(ends)}: differs {differs}, result same {same}, from {result.resumed_from}")


def check_gathering(group: Group) -> None:
    """What was read twice so that all ranks have the same number counts once."""
    for size in range(14):
        own = torch.arange(size)[group.rank :: group.world_size]
        for dtype in (torch.int64, torch.float16, torch.bfloat16, torch.bool, torch.complex64):
            numbers = torch.arange(size).to(dtype)
            assert torch.equal(group.gather_samples(numbers[own], size), numbers)
        rows = torch.arange(2.0 * size).reshape(size, 2)
        assert torch.equal(group.gather_samples(rows[own], size), rows)
        if size:
            sampler = DistributedSampler(range(size), group.world_size, group.rank, shuffle=False)
            assert torch.equal(group.gather_samples(rows[list(sampler)], size), rows)
        own = torch.full((size * group.rank, 3), group.rank)
        assert torch.equal(group.gather(own).unique(), torch.arange(group.world_size if size else 1)[1:])
    wrong = [lambda: group.gather_samples(torch.ones(2), 99), lambda: group.gather(torch.tensor(1.0))]
    if group.world_size > 1:
        wrong.append(lambda: group.gather(torch.ones(3, 1 + group.rank)))
    for each in wrong:
        try:
            each()
        except ValueError:
            continue
        raise AssertionError("taken")


def main() -> None:
    """Train, and say what differs."""
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group, tempfile.TemporaryDirectory() as temporary:
        first = Path(temporary) if group.first else Path(temporary) / "unused"
        if sys.argv[1:2] == ["--in"]:
            found, _ = train(group, Path(sys.argv[2]), f"die {sys.argv[4]}" if sys.argv[3:] else "")
            for name, value in found.items() if group.first else ():
                say(f"FOUND {name}: {value}")
            return
        check_gathering(group)
        whole = train(group, first / "whole")
        without, _ = train(group, first / "without", evaluates=False)
        if group.first:
            same = all(whole[0][name] == value for name, value in without.items())
            kept = sorted(version.step for version in CheckpointFolder(first / "whole").versions())
            assert whole[1] is not None
            say(f"== without evaluations: same {same}")
            say(f"== kept {kept}, best {whole[1].best_step}, {whole[1]}")
        for case in sys.argv[1:]:
            ends = case.split(",")
            compare(group, first / "-".join(ends).replace(" ", "-"), whole, *ends)
        shorter = first / "longer"
        train(group, shorter, max_steps=10)
        found, result = train(group, shorter)
        if group.first:
            rates = {name: value.split()[1] for name, value in found.items() if name.startswith("loss")}
            same = all(whole[0][name].split()[1] == rate for name, rate in rates.items())
            assert result is not None
            say(f"== longer: from {result.resumed_from}, to {result.steps}, rates same {same}")


if __name__ == "__main__":
    main()
