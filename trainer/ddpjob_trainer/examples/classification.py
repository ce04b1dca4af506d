"""What the examples that classify images have in common."""

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

    Counted in epochs, and recomputed after a resume: it stays correct with more processes or epochs than before, unlike
    CosineAnnealingLR, which keeps its length in checkpoints.

    Args:
        optimizer: has the initial learning rate, which is kept in checkpoints.
        epochs: of the whole training.
        times: factor of the learning rate that depends on this run, such as on the number of processes.
    """

    def factor(epoch: int) -> float:
        return times * (1 + math.cos(math.pi * epoch / epochs)) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def say_outcome(group: Group, model: nn.Module, accuracy: float, held_out: int) -> None:
    """Print a proof that all processes have trained one model, and how good it is.

    Args:
        group: the processes of the training.
        model: of this process.
        accuracy: from 0 to 1, on all held-out images.
        held_out: the number of these images.
    """
    say(f"[{group.label}] World size {group.world_size} | Parameters sha256 {parameters_digest(model)}")
    if group.first:
        say(f"Accuracy {accuracy:.4f} on {held_out} held-out images")
