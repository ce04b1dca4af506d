"""Times what the library does in addition to each step of a loop of one's own, between steps that really compute."""

import json
import os
import time

import torch

from ddpjob_trainer import Activity, LogRecord, Plan, StopRequests, Telemetry, process_group
from hack.bench.training.statistics import percentile
from hack.bench.training.workload import LOG_EVERY, bind_to_core

STEPS = 10_000
_WARM_STEPS = 500
_SIZE = 192


def main() -> None:
    """Measure, and print microseconds as JSON."""
    bind_to_core()
    with process_group() as group:
        telemetry = Telemetry(group)
        model = torch.nn.Linear(_SIZE, _SIZE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.randn(_SIZE, _SIZE)
        telemetry.started(Plan(1, STEPS + _WARM_STEPS, 0, resumed=False))
        telemetry.epoch_started(1, STEPS + _WARM_STEPS)
        taken: list[float] = []
        with StopRequests(group) as requests:
            for step in range(1, STEPS + _WARM_STEPS + 1):
                begun = time.perf_counter()
                telemetry.activity_changed(Activity.STEP)
                spent = time.perf_counter() - begun
                optimizer.zero_grad()
                loss = (model(data) ** 2).mean()
                begun = time.perf_counter()
                telemetry.loss_computed(0.001)
                spent += time.perf_counter() - begun
                loss.backward()
                optimizer.step()
                begun = time.perf_counter()
                telemetry.step_finished(step, _SIZE, 0.001, 0.0)
                if step % LOG_EVERY == 0:
                    telemetry.logged(LogRecord(step, 0.5, 0.01, 1.0, step * _SIZE))
                requests.agreed(step)
                telemetry.activity_changed(Activity.DATA)
                spent += time.perf_counter() - begun
                if step > _WARM_STEPS:
                    taken.append(spent * 1e6)
        found = {"steps": len(taken), "p50": percentile(taken, 50), "p99": percentile(taken, 99), "max": max(taken)}
        print(json.dumps(found), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
