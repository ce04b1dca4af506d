"""The small regression of the DistributedDataParallel tutorials, shared by all ways to launch it."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import nn
from torch.utils.data import TensorDataset

import ddpjob_trainer
from ddpjob_trainer import (
    Environment,
    MisuseError,
    Settings,
    configure_logging,
    current_environment,
    process_group,
    seed_everything,
)
from ddpjob_trainer.observability.log import say
from ddpjob_trainer.process.environment import Backend, Launcher

SAMPLES: Final = 2048
FEATURES: Final = 20


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of all of these programs."""

    total_epochs: int
    save_every: int
    batch_size: int


DEFAULT: Final = Arguments(total_epochs=20, save_every=5, batch_size=32)


def parse_arguments(program: str, arguments: Sequence[str], default: Arguments | None = None) -> Arguments:
    """Epochs and epochs between two checkpoints, by position or by name; exits with a message if they are wrong.

    Args:
        program: its name, for messages.
        arguments: its command line.
        default: used for an empty command line; None rejects it.
    """
    if default is not None and not arguments:
        return default
    parser = argparse.ArgumentParser(prog=program, description="Train a linear model on a small regression.")
    parser.add_argument("positional", nargs="*", type=int, metavar="TOTAL_EPOCHS SAVE_EVERY")
    parser.add_argument("--total-epochs", "--total_epochs", type=int, help="number of passes through the data")
    parser.add_argument("--save-every", "--save_every", type=int, help="epochs between two checkpoints")
    parser.add_argument("--batch-size", "--batch_size", type=int, default=32, help="samples per process and step")
    parsed = parser.parse_args(arguments)
    named = (parsed.total_epochs, parsed.save_every)
    numbers = parsed.positional or [number for number in named if number is not None]
    if len(numbers) != len(named) or (parsed.positional and any(number is not None for number in named)):
        parser.error(f"TOTAL_EPOCHS and SAVE_EVERY are required, for example: {program} 50 10")
    if min(*numbers, parsed.batch_size) < 1:
        parser.error("TOTAL_EPOCHS, SAVE_EVERY and --batch-size must be at least 1")
    return Arguments(numbers[0], numbers[1], parsed.batch_size)


def data() -> TensorDataset:
    """Features [2048, 20] and targets [2048, 1], linear with some noise; the same in every process."""
    random = torch.Generator().manual_seed(0)
    features = torch.rand(SAMPLES, FEATURES, generator=random)
    weights = torch.rand(FEATURES, 1, generator=random)
    return TensorDataset(features, features @ weights + 0.01 * torch.randn(SAMPLES, 1, generator=random))


def squared_error(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    """Mean squared error of a batch of features and targets."""
    features, targets = batch
    return nn.functional.mse_loss(model(features), targets)


def train_under_mpirun(program: str, backend: Backend, *, otherwise: Backend) -> None:
    """Train over one backend if mpirun has started this process, and otherwise over another one, which the log names.

    Args:
        program: its name, for messages.
        backend: under mpirun.
        otherwise: under any other launcher.
    """
    environment = current_environment()
    chosen = backend if environment.launcher is Launcher.MPIRUN else otherwise
    job = replace(environment.job, backend=chosen)
    if chosen is not backend and environment.rank == 0:
        say(f"{program}: {backend} cannot connect processes started by {environment.launcher}: using {chosen} instead")
    train(parse_arguments(program, environment.arguments), replace(environment, job=job))


def train(arguments: Arguments, environment: Environment | None = None) -> None:
    """Train with all processes of the launcher, and save and resume if the job has a place for checkpoints.

    Args:
        arguments: of the command line.
        environment: the place of this process; None reads it from the launcher's variables.
    """
    environment = environment or current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        seed_everything(0)
        model = nn.Linear(FEATURES, 1)
        ddpjob_trainer.train(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            squared_error,
            data(),
            Settings(
                total_epochs=arguments.total_epochs, save_every=arguments.save_every, batch_size=arguments.batch_size
            ),
            group=group,
        )


def need_gpu(program: str) -> None:
    """Raises MisuseError if no GPU is visible."""
    if torch.cuda.device_count() == 0:
        raise MisuseError(
            f"{program} needs a GPU, but none is visible: request one in spec.trainer.resources.limits "
            "(nvidia.com/gpu: 1), or use multinode_ddp, which runs without"
        )
