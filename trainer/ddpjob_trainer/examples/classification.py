"""What the examples that learn to tell classes of images apart have in common."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from ddpjob_trainer.examples.digest import parameters_digest
from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.group import Group


def cross_entropy(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    """Mean loss of a batch of images and labels."""
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def cosine(optimizer: torch.optim.Optimizer, epochs: int, times: float = 1) -> torch.optim.lr_scheduler.LRScheduler:
    """A learning rate that falls to 0 along half a cosine, advanced after each epoch.

    Counted in epochs, and computed anew where a training goes on: neither more processes nor more epochs than before
    change what is meant, as they would for CosineAnnealingLR, which keeps its length in checkpoints.

    Args:
        optimizer: has the learning rate to begin with, which a checkpoint keeps.
        epochs: of the whole training.
        times: what of the learning rate depends on how it is run now, as on the number of processes.
    """

    def factor(epoch: int) -> float:
        return times * (1 + math.cos(math.pi * epoch / epochs)) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def say_outcome(group: Group, model: nn.Module, accuracy: float, held_out: int) -> None:
    """Print what proves that all processes have trained one model, and what it is worth.

    Args:
        group: the processes of the training.
        model: as this process has it.
        accuracy: from 0 to 1, on all held-out images.
        held_out: how many these are.
    """
    say(f"[{group.label}] World size {group.world_size} | Parameters sha256 {parameters_digest(model)}")
    if group.first:
        say(f"Accuracy {accuracy:.4f} on {held_out} held-out images")
