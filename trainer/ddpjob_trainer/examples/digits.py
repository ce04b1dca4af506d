"""Trains a small CNN on real handwritten digits.

    torchrun --nproc-per-node 2 -m ddpjob_trainer.examples.digits --total-epochs 20 --save-every 5 --batch-size 32

Runs unchanged as a DDPJob, under torchrun and as a single process, on GPUs and without.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import TensorDataset

from ddpjob_trainer import (
    Interval,
    Settings,
    configure_logging,
    current_environment,
    process_group,
    seed_everything,
    train,
)
from ddpjob_trainer.examples.classification import cosine, cross_entropy, say_outcome
from ddpjob_trainer.examples.data import DIGITS

HELD_OUT: Final = 360
SPLIT_SEED: Final = 1797
BRIGHTEST: Final = 16.0
LOG_EVERY: Final = 4


@dataclass(frozen=True, slots=True)
class Arguments:
    """The program's command line."""

    total_epochs: int
    save_every: int
    batch_size: int
    learning_rate: float
    seed: int
    data_fraction: float
    checkpoint_dir: str | None


@dataclass(frozen=True, slots=True)
class Digits:
    """Images float32 [n, 1, 8, 8] from 0 to 1 with labels int64 [n], in two parts that share no image."""

    training: tuple[torch.Tensor, torch.Tensor]
    held_out: tuple[torch.Tensor, torch.Tensor]


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Parse the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="digits", description="Train a small CNN on handwritten digits.")
    parser.add_argument("--total-epochs", type=int, default=20, help="number of passes through the data")
    parser.add_argument("--save-every", type=int, default=5, help="epochs between two checkpoints")
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="initial learning rate, decays to 0")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and of the order of the data")
    parser.add_argument("--data-fraction", type=float, default=1.0, help="fraction of the training data to use")
    parser.add_argument("--checkpoint-dir", help="folder for checkpoints; default: the job's, or none")
    parsed = Arguments(**vars(parser.parse_args(arguments)))
    if not 0 < parsed.data_fraction <= 1:
        parser.error("--data-fraction must be above 0 and at most 1")
    return parsed


def load_digits(fraction: float) -> Digits:
    """The data set, split the same way in every run.

    Args:
        fraction: of the training images to keep; the held-out ones are always the same.
    """
    tensors = load_file(DIGITS)
    images, labels = tensors["images"].unsqueeze(1).float() / BRIGHTEST, tensors["labels"].long()
    # Python's generator and not torch's: its results are guaranteed not to change.
    order = list(range(len(images)))
    random.Random(SPLIT_SEED).shuffle(order)  # noqa: S311 not used for security
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    training = training[: max(int(len(training) * fraction), 1)]
    return Digits((images[training], labels[training]), (images[held_out], labels[held_out]))


def build_model() -> nn.Module:
    """A CNN from images [n, 1, 8, 8] to the logits [n, 10] of the ten digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(128 * 2 * 2, 10),
    )


@record  # type: ignore[untyped-decorator]  # passes the traceback of any exception to torchrun
def main() -> None:
    """Train, and print a proof that all processes have trained one model."""
    environment = current_environment()
    arguments = parse_arguments(environment.arguments)
    configure_logging(environment)
    with process_group(environment) as group:
        seed_everything(arguments.seed)
        digits = load_digits(arguments.data_fraction)
        model = build_model().to(group.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate)

        def accuracy(model: nn.Module) -> float:
            images, labels = (part[group.rank :: group.world_size].to(group.device) for part in digits.held_out)
            correct = (model(images).argmax(1) == labels).sum() if len(labels) else 0
            right, count = group.sum(float(correct), len(labels))
            return right / count

        train(
            model,
            optimizer,
            cross_entropy,
            TensorDataset(*digits.training),
            Settings(
                total_epochs=arguments.total_epochs,
                batch_size=arguments.batch_size,
                save_every=arguments.save_every,
                log_every=LOG_EVERY,
                seed=arguments.seed,
                scheduler_interval=Interval.EPOCH,
            ),
            group=group,
            scheduler=cosine(optimizer, arguments.total_epochs),
            evaluate=accuracy,
            checkpoint_dir=arguments.checkpoint_dir,
        )
        model.eval()
        with torch.no_grad():
            final = accuracy(model)
        say_outcome(group, model, final, HELD_OUT)


if __name__ == "__main__":
    main()
