"""What a training writes to its standard streams."""

import logging
import sys
from typing import TextIO

from ddpjob_trainer.observability.listener import Evaluation, Listener, LogRecord, Plan
from ddpjob_trainer.observability.metric_names import ACCURACY
from ddpjob_trainer.process.environment import Environment
from ddpjob_trainer.process.group import Group

_log = logging.getLogger(__name__)


def configure_logging(environment: Environment) -> None:
    """Log to standard error: everything on rank 0, only warnings on the others.

    A program that has configured handlers keeps them and their levels: then only what this library says is limited.
    """
    level = logging.INFO if environment.rank == 0 else logging.WARNING
    logging.getLogger("ddpjob_trainer").setLevel(level)
    logging.basicConfig(
        level=level,
        format=f"%(asctime)s %(levelname)s [rank {environment.rank}] %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )


class EpochLines(Listener):
    """Prints `[GPU3] Epoch 7 | Batchsize: 32 | Steps: 14` on every rank, and logs losses and checkpoints on rank 0."""

    def __init__(self, group: Group, batch_size: int, stream: TextIO | None = None) -> None:
        """Args:
        group: the processes of the training.
        batch_size: samples per process and step.
        stream: where to print; None is standard output.
        """
        self._group = group
        self._batch_size = batch_size
        self._stream = stream or sys.stdout
        self._total_steps = 0

    def started(self, plan: Plan) -> None:
        """Remember the length of the training for the lines to come."""
        self._total_steps = plan.total_steps

    def epoch_started(self, epoch: int, steps: int) -> None:
        """Print the line of the epoch."""
        say(f"[{self._group.label}] Epoch {epoch} | Batchsize: {self._batch_size} | Steps: {steps}", self._stream)

    def logged(self, record: LogRecord) -> None:
        """Log the loss."""
        _log.info("step %d/%d | loss %.6f", record.step, self._total_steps, record.loss)

    def checkpoint_saved(self, step: int, pause_seconds: float) -> None:
        """Log the checkpoint."""
        _log.info("checkpoint at step %d in %.3f s", step, pause_seconds)

    def measured(self, evaluation: Evaluation) -> None:
        """Log what is not an accuracy."""
        others = [f"{name} {value:.6g}" for name, value in evaluation.metrics.items() if name != ACCURACY]
        if others:
            _log.info("evaluation after step %d: %s", evaluation.step, ", ".join(others))

    def evaluated(self, value: float, no_improvement_for: int | None) -> None:  # noqa: ARG002 the accuracy is logged
        """Log the accuracy."""
        _log.info("accuracy %.4f", value)


def say(line: str, stream: TextIO | None = None) -> None:
    """Print a line immediately and in one piece, since all ranks of a node share one stream."""
    stream = stream or sys.stdout
    stream.write(line + "\n")
    stream.flush()
