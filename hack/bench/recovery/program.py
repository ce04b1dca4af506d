"""The training that faults are done to. It runs in the pods: marks on the shared volume say when each rank was where.

A mark is a line of JSON: `rank`, `pid`, `at` (the host's clock, which all nodes of a kind cluster share), `what`
(started, imported, met, step) and, of a step, its number.
"""

import json
import os
import sys
import time
from pathlib import Path

STARTED = time.time()

import torch  # noqa: E402 what its import costs is measured
import torch.distributed as dist  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from ddpjob_trainer import (  # noqa: E402
    Listener,
    Settings,
    configure_logging,
    current_environment,
    process_group,
    train,
)

STEPS_BETWEEN_CHECKPOINTS = 10
STEP_SECONDS = 0.1
SAMPLES = 4096


class Marks(Listener):
    """Writes the marks of one rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rank = rank
        # A pod that takes the place of another of its name may have the same process ids.
        process = f"{rank}-{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"
        self._file = (folder / f"{process}.jsonl").open("a", buffering=1)

    def mark(self, what: str, at: float, **more: int) -> None:
        """Write one."""
        self._file.write(json.dumps({"rank": self._rank, "pid": os.getpid(), "at": at, "what": what, **more}) + "\n")

    def step_finished(self, step: int, samples: int, seconds: float, data_seconds: float) -> None:  # noqa: ARG002
        """Mark a step, and let it take the time of one that computes."""
        self.mark("step", time.time(), step=step)
        time.sleep(STEP_SECONDS)


def main() -> None:
    """Train until killed."""
    imported = time.time()
    environment = current_environment()
    configure_logging(environment)
    with process_group(environment) as group:
        marks = Marks(Path(sys.argv[1]), group.rank)
        marks.mark("started", STARTED)
        marks.mark("imported", imported)
        marks.mark("met", time.time())
        if "meet-first" in sys.argv:
            dist.barrier()
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 1)
        train(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
            TensorDataset(torch.randn(SAMPLES, 16), torch.randn(SAMPLES, 1)),
            Settings(total_epochs=100_000, batch_size=8, save_every_steps=STEPS_BETWEEN_CHECKPOINTS),
            group=group,
            listeners=(marks,),
        )


if __name__ == "__main__":
    main()
