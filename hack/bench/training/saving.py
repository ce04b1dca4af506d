"""Times how long saves keep a training from computing: a model of 50 MB with AdamW, a save every two seconds.

saving.py FOLDER [--asynchronous] [--saves N]
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpjob_trainer import Checkpoints, Position, TrainingState, current_environment, process_group
from ddpjob_trainer.checkpointing.step_gate import Pause
from hack.bench.training.workload import bind_to_core

SECONDS_BETWEEN = 2.0
_WIDTH = 1792
_LAYERS = 4
_BATCH = 8


def main() -> None:
    """Measure, and print on rank 0 milliseconds as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--saves", type=int, default=20)
    bind_to_core()
    environment = current_environment()
    options = parser.parse_args(environment.arguments)
    with process_group(environment) as group:
        model = nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)))
        optimizer = torch.optim.AdamW(model.parameters())
        state = TrainingState(model, optimizer)
        distributed = DistributedDataParallel(model)
        saved = Checkpoints.of_job(group, options.folder, asynchronous=options.asynchronous)
        assert saved is not None  # noqa: S101 a folder was given
        batch = torch.randn(_BATCH, _WIDTH)
        pauses = list[Pause]()
        steps = [0]

        def train(seconds: float) -> tuple[int, float]:
            """Make steps for so long, by rank 0's clock; how many, and the seconds that they took."""
            begun, first = time.perf_counter(), steps[0]
            while group.exchange.first(time.perf_counter() - begun)[0] < seconds:
                optimizer.zero_grad()
                (distributed(batch) ** 2).mean().backward()
                optimizer.step()
                steps[0] += 1
                saved.durable_step()
            return steps[0] - first, time.perf_counter() - begun

        train(0.1)
        saved.prepare(state)
        saved.finish()
        undisturbed = train(SECONDS_BETWEEN)
        begun, first = time.perf_counter(), steps[0]
        for _ in range(options.saves):
            # Ranks that come at different times wait for each other in any collective.
            dist.barrier()
            pauses.append(saved.save(state, Position(0, steps[0], steps[0]), during_next_step=True))
            train(SECONDS_BETWEEN)
        disturbed = steps[0] - first, time.perf_counter() - begun
        saved.finish()
        if group.first:
            count = sum(each.numel() * each.element_size() for each in model.parameters())
            blocked = [pause.seconds * 1e3 for pause in pauses]
            found = {"bytes": count, "blocked": blocked, "undisturbed": undisturbed, "disturbed": disturbed}
            print(json.dumps(found), flush=True)
        dist.barrier()
        os._exit(0)


if __name__ == "__main__":
    main()
