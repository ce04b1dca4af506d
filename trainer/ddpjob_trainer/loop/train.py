"""A whole training in one call, for programs that bring nothing but a model and its data."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from ddpjob_trainer.checkpointing.checkpoints import checkpoints
from ddpjob_trainer.data.loading import Collate
from ddpjob_trainer.loop.optimization import Loss
from ddpjob_trainer.loop.settings import Settings
from ddpjob_trainer.loop.training_loop import Evaluate, Trainer
from ddpjob_trainer.observability.listener import Listener
from ddpjob_trainer.observability.log import EpochLines, configure_logging
from ddpjob_trainer.observability.telemetry import Telemetry
from ddpjob_trainer.process.environment import current_environment
from ddpjob_trainer.process.exchange import Exchange
from ddpjob_trainer.process.group import process_group


def train(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss,
    dataset: Dataset[Any],
    settings: Settings,
    *,
    scheduler: LRScheduler | None = None,
    evaluate: Evaluate | None = None,
    collate_fn: Collate | None = None,
    checkpoint_dir: str | None = None,
    asynchronous: bool = False,
    listeners: Sequence[Listener] = (),
    timeout: timedelta | None = None,
) -> None:
    """Train with all processes that a launcher has started, or alone, and resume where the job's checkpoints end.

    Joins the process group, moves the model to the rank's device, logs, shows progress and metrics, saves, and stops as
    one on SIGTERM. Whoever needs the parts puts them together as this function does.

    Args:
        model: on any device.
        optimizer: of the model's parameters, with no step made.
        loss: of a batch, the mean over its samples.
        dataset: with a length; the same on all ranks, each reads its own part.
        settings: how to proceed.
        scheduler: of the optimizer.
        evaluate: measures the model whenever a checkpoint at the end of an epoch is due.
        collate_fn: makes a batch of samples, in the DataLoader; None is torch's own.
        checkpoint_dir: folder for checkpoints; None takes the operator's, and saves nothing where there is none.
        asynchronous: checkpoints are written beside the training.
        listeners: are told of everything, beside those that log and show progress.
        timeout: how long a collective may take; None is torch's own choice for the backend.

    Raises:
        MisuseError: the processes were started in a way that cannot work.
        Stopped: all ranks were asked to stop and have saved their last step; ends the process with exit code 143.
        SaveError: a checkpoint could not be written.
        MisfitError: the checkpoint to resume from is of another model.
    """
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment, timeout) as group:
        # Parameters stay the same objects, so that the optimizer keeps them.
        model.to(group.device)
        if optimizer.state:
            # Adagrad has some before its first step; what is loaded goes where the parameters are.
            optimizer.load_state_dict(optimizer.state_dict())
        Trainer(
            group=group,
            model=model,
            optimizer=optimizer,
            loss=loss,
            dataset=dataset,
            settings=settings,
            scheduler=scheduler,
            evaluate=evaluate,
            collate_fn=collate_fn,
            checkpoints=checkpoints(environment, Exchange(group.device), checkpoint_dir, asynchronous=asynchronous),
            listeners=(EpochLines(group, settings.batch_size), Telemetry(environment, group), *listeners),
        ).run()
