"""A training whose every loss and every sample that was read is printed exactly, and that can be ended at a step.

resumable.py FOLDER [--epochs N] [--batch-size N] [--save-every-steps N] [--die-at-step N] [--fail-at-step N] [--nan]
    [--stop-at STEP|start|evaluation] [--stop-rank N] [--step-seconds N] [--data-workers N] [--hang-rank N]
    [--evaluation-seconds N] [--asynchronous] [--die-while-saving STEP]

--stop-at sends SIGTERM to a rank with its data loader's processes, as torchrun does; without --stop-rank to each rank.
--hang-rank lets a rank wait for ever for data after its first steps.
--die-while-saving kills rank 0 when all files of the checkpoint of a step are written and not yet renamed.
"""

import argparse
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from ddpjob_trainer import (
    Checkpoints,
    Listener,
    LogRecord,
    Plan,
    Settings,
    Telemetry,
    configure_logging,
    current_environment,
    process_group,
    seed_everything,
)
from ddpjob_trainer.checkpointing.storage import CheckpointFolder
from ddpjob_trainer.examples.digest import parameters_digest
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.log import say

SIZE = 102
HANGS_AFTER = 20


class Numbers(Dataset[tuple[int, torch.Tensor]]):
    """Vectors of four numbers, each with its index."""

    def __init__(self, *, hang: bool) -> None:
        self.hang = hang
        self.reads = 0

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.reads += 1
        if self.hang and self.reads > HANGS_AFTER:
            say("HANGS")
            read_from_a_volume_that_is_gone()
        return index, torch.sin(torch.arange(4) + index)


def read_from_a_volume_that_is_gone() -> None:
    threading.Event().wait()


class Witness(Listener):
    """Prints every step on rank 0, and ends the process where the arguments say."""

    def __init__(self, rank: int, die_at: int, fail_at: int, stop_at: str | None, evaluation: float) -> None:
        self.rank = rank
        self.die_at = die_at
        self.fail_at = fail_at
        self.stop_at = stop_at
        self.evaluation = evaluation
        self.read: list[int] = []

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:
        say(f"RANK {self.rank} STEP {step} READ {self.read}")
        assert samples == len(self.read)
        assert 0 <= data_seconds <= seconds
        self.stop_if(str(step))
        if step == self.fail_at:
            raise ValueError("failed on purpose")

    def started(self, plan: Plan) -> None:
        say(f"RANK {self.rank} STARTS AFTER {plan.step}")
        self.stop_if("start")

    def evaluate(self, _model: nn.Module) -> float:
        self.stop_if("evaluation")
        time.sleep(self.evaluation)
        return 0.5

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:
        assert no_improvement_for is None
        say(f"RANK {self.rank} EVALUATED {value}")

    def stopped(self, step: int) -> None:
        say(f"RANK {self.rank} STOPPED AFTER {step}")

    def stop_if(self, here: str) -> None:
        if here == self.stop_at:
            os.killpg(os.getpgrp(), signal.SIGTERM)

    def logged(self, record: LogRecord) -> None:
        if self.rank == 0:
            say(f"step {record.step}/0 | loss {record.loss.hex()}")

    def epoch_started(self, epoch: int, steps: int) -> None:
        say(f"RANK {self.rank} EPOCH {epoch} STEPS {steps}")

    def checkpoint_saved(self, step: int, pause_seconds: float) -> None:
        say(f"RANK {self.rank} SAVED {step}")
        assert pause_seconds >= 0
        if self.die_at and step >= self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(CheckpointFolder):
    """Does not survive the writing of one checkpoint."""

    def __init__(self, folder: Path, die_at: int) -> None:
        super().__init__(folder)
        self.die_at = die_at

    def save(
        self, step: int, content: dict[str, Any], write: Callable[[Path], None], *, keep: int | None = None
    ) -> Path:
        def write_and_die(folder: Path) -> None:
            write(folder)
            if step == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        return super().save(step, content, write_and_die, keep=keep)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--save-every-steps", type=int, default=3)
    parser.add_argument("--die-at-step", type=int, default=0)
    parser.add_argument("--fail-at-step", type=int, default=0)
    parser.add_argument("--nan", action="store_true")
    parser.add_argument("--stop-at")
    parser.add_argument("--stop-rank", type=int)
    parser.add_argument("--step-seconds", type=float, default=0)
    parser.add_argument("--data-workers", type=int, default=0)
    parser.add_argument("--hang-rank", type=int)
    parser.add_argument("--evaluation-seconds", type=float, default=0)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--die-while-saving", type=int)
    environment = current_environment()
    options = parser.parse_args(environment.arguments)
    configure_logging(environment)
    with process_group(environment) as group:
        seed_everything(7)
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        stop_at = options.stop_at if options.stop_rank in (None, group.rank) else None
        witness = Witness(group.rank, options.die_at_step, options.fail_at_step, stop_at, options.evaluation_seconds)

        def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            indices, numbers = batch
            witness.read = indices.tolist()
            time.sleep(options.step_seconds)
            # From all three generators, so that the curve goes on only where all of them do.
            noise = 0.1 * (float(torch.rand(())) + random.random() + np.random.rand())  # noqa: NPY002, S311
            wrong = (model(numbers) - numbers.sum(1, keepdim=True) + noise) ** 2
            return wrong.mean() * (float("nan") if options.nan else 1.0)

        if options.die_while_saving is None:
            saved = Checkpoints.of_job(group, options.folder, asynchronous=options.asynchronous)
        else:
            deadly = Deadly(Path(options.folder), options.die_while_saving)
            saved = Checkpoints(deadly, group, asynchronous=options.asynchronous)
        TrainingLoop(
            group=group,
            model=model,
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=200),
            loss=loss,
            dataset=Numbers(hang=options.hang_rank == group.rank),
            evaluate=witness.evaluate,
            checkpoints=saved,
            settings=Settings(
                total_epochs=options.epochs,
                batch_size=options.batch_size,
                save_every_steps=options.save_every_steps,
                log_every=1,
                seed=3,
                data_workers=options.data_workers,
                on_nan="warn" if options.nan else "stop",
            ),
            listeners=(Telemetry(group), witness),
        ).run()
        digest = parameters_digest(model)
        say(f"[{group.label}] World size {group.world_size} | Parameters sha256 {digest}")


if __name__ == "__main__":
    main()
