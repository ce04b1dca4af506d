"""A whole training in one call."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer.checkpointing.checkpoints import Checkpoints
from ddpjob_trainer.checkpointing.naming import training_in
from ddpjob_trainer.data.loading import Collate
from ddpjob_trainer.loop.evaluating import Evaluate
from ddpjob_trainer.loop.optimization import Loss
from ddpjob_trainer.loop.result import Result
from ddpjob_trainer.loop.schedule import MakeScheduler
from ddpjob_trainer.loop.settings import Settings
from ddpjob_trainer.loop.survival import RankLostError, Survival
from ddpjob_trainer.loop.training_loop import TrainingLoop
from ddpjob_trainer.observability.listener import Listener
from ddpjob_trainer.observability.log import EpochLines, configure_logging
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.environment import current_environment
from ddpjob_trainer.process.group import Group, process_group
from ddpjob_trainer.process.stop import noting_requests


def train(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss,
    dataset: Dataset[Any] | DataLoader[Any],
    settings: Settings,
    *,
    group: Group | None = None,
    scheduler: LRScheduler | MakeScheduler | None = None,
    evaluate: Evaluate | None = None,
    collate_fn: Collate | None = None,
    checkpoint_dir: str | None = None,
    name: str | None = None,
    asynchronous: bool = False,
    listeners: Sequence[Listener] = (),
) -> Result:
    """Train with all processes that a launcher has started, or alone, and resume from the job's newest checkpoint.

    Moves the model to the rank's device, prints each epoch, serves progress and metrics, saves, and stops all ranks
    together on SIGTERM. Without a group it also configures logging, joins the process group, and leaves it at the end.

    Args:
        model: on any device.
        optimizer: of the model's parameters, with no step made.
        loss: of a batch: the mean over its samples, or a sum with its weight.
        dataset: with a length; the same on all ranks, each reads its own part. Or a DataLoader, as for one process.
        settings: how to proceed.
        group: what `process_group` gave, for a program that needs the ranks before or after training, or in `evaluate`.
        scheduler: of the optimizer; advanced after every step, or as the settings say. Or a function that makes it,
            given the optimizer and the number of steps, such as `torch.optim.lr_scheduler.CosineAnnealingLR`.
        evaluate: measures the model, as often as the settings say: gives a number, or several by name.
        collate_fn: makes a batch of samples, in the DataLoader; None is torch's own.
        checkpoint_dir: folder for checkpoints; None uses the operator's, and saves nothing without one.
        name: of this training, for a process with several, such as folds: each has its own checkpoints.
        asynchronous: write checkpoints while the training continues.
        listeners: are notified of everything, after those that print, log and serve progress.

    Returns:
        What the training has done, including what was done before a resume.

    Raises:
        MisuseError: the processes were started in a way that cannot work, or the arguments contradict each other;
            or it is a second training in this process without a name of its own.
        Stopped: all ranks were asked to stop and have saved their last step; ends the process with exit code 143.
        SaveError: a checkpoint could not be written; with asynchronous ones on rank 0 alone after the step in which it
            failed, whose end the others notice.
        MisfitError: the checkpoint to resume from belongs to another model.
        ResumeError: there are checkpoints, but none can be resumed from.
        NonFiniteError: the loss, a gradient or the state is not finite, by `Settings.on_nan`; on all ranks.
        NotMetError: a rank was killed and replaced, and the ranks did not come together again.
    """
    with _joined() if group is None else nullcontext(group) as ranks:
        # Parameters stay the same objects, so that the optimizer keeps them.
        model.to(ranks.device)
        if optimizer.state:
            # Adagrad has some before its first step; what is loaded goes where the parameters are.
            optimizer.load_state_dict(optimizer.state_dict())
        survival = Survival.of(ranks, [model], settings.optimization, name=name)
        checkpoints = Checkpoints.of_job(ranks, checkpoint_dir, asynchronous=asynchronous, name=name)
        observers = (EpochLines(ranks, settings.batch_size), Telemetry(ranks), *listeners)

        def set_up() -> TrainingLoop:
            return TrainingLoop(
                group=ranks,
                model=model,
                optimizer=optimizer,
                loss=loss,
                dataset=dataset,
                settings=settings,
                scheduler=scheduler,
                evaluate=evaluate,
                collate_fn=collate_fn,
                checkpoints=checkpoints,
                listeners=observers,
                survival=survival,
            )

        with training_in(None if checkpoints is None else checkpoints.location, name):
            return set_up().run() if survival is None else _surviving(set_up, survival)


def _surviving(set_up: Callable[[], TrainingLoop], survival: Survival) -> Result:
    """Train, and again after each loss of a rank, from the step that was lost."""
    with noting_requests():
        while True:
            survival.begin()
            loop = set_up()
            try:
                result = loop.run()
            except RankLostError:
                loop.leave()
            else:
                survival.end()
                return result
            # Only here is nothing left of what the exception has passed through.
            del loop
            gc.collect()
            survival.regroup()


@contextmanager
def _joined() -> Iterator[Group]:
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        yield group
