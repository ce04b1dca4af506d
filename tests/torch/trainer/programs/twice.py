"""Two trainings in one process, each of which joins the process group by itself: twice.py FOLDER [NAME NAME]."""

import json
import os
import sys
import urllib.request

import torch
from torch.utils.data import TensorDataset

from ddpjob_trainer import Listener, Settings, train
from ddpjob_trainer.examples.digest import parameters_digest
from ddpjob_trainer.observability.log import say


class Steps(Listener):
    """Prints how many steps were made, and what is served meanwhile."""

    steps = 0

    def step_finished(self, step: int, *_: object) -> None:
        self.steps += 1
        if step == 1 and "DDPJOB_METRICS_PORT" in os.environ:
            port = int(os.environ["DDPJOB_METRICS_PORT"]) + int(os.environ.get("LOCAL_RANK", "0"))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress") as answer:
                say(f"PLANNED {json.load(answer)['totalSteps']}")


def main() -> None:
    folder, names = sys.argv[1], sys.argv[2:] or [None, None]
    for fold, name in enumerate(names):
        torch.manual_seed(fold)
        model, steps = torch.nn.Linear(4, 1), Steps()
        train(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            lambda model, batch: model(batch[0]).square().mean(),
            TensorDataset(torch.randn(16 * (fold + 1), 4)),
            Settings(total_epochs=2, batch_size=4),
            checkpoint_dir=folder,
            name=name,
            listeners=(steps,),
        )
        say(f"TRAINED {name} {steps.steps} {parameters_digest(model)}")


main()
