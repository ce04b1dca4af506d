"""A training that mpirun starts, of which one rank is asked to stop once its steps have become slower."""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ddpjob_trainer import Listener, Settings, train

ASKED_AT = 400
"""Step in which the last rank is asked, after steps of less than a millisecond."""
SLOW = 0.3
"""Seconds of each later step: at the speed of the earlier ones, a second would have thousands of them."""


class Asks(Listener):
    """Asks its own process to stop."""

    def step_finished(self, step: int, *_: float) -> None:
        """A step is done."""
        if step < ASKED_AT:
            return
        if step == ASKED_AT and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SLOW)


def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """The mean of squares."""
    return (model(batch[0]) ** 2).mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        loss,
        TensorDataset(torch.randn(20_000, 4)),
        Settings(total_epochs=2, batch_size=16),
        listeners=[Asks()],
    )
