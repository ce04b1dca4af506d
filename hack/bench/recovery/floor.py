"""What no recovery can do without, measured in the same run: pods that come up, and imports on these cores."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from hack.bench.recovery.manifests import IMAGE, NAMESPACE, NODES, PROCESSES
from hack.console import StepError, output_of

_PROGRAM: Final = f"""
import json, subprocess, sys, time
begun = time.time()
from torch.distributed import run
launcher = time.time()
# torch imports its compiler when the first optimizer is made. To take all of it down again costs more than a second.
imports = "import os, torch, torch._dynamo; from ddpjob_trainer import train; os._exit(0)"
worker = [sys.executable, "-c", imports]
took = []
for _ in range(2):
    started = time.time()
    for process in [subprocess.Popen(worker) for _ in range({PROCESSES})]:
        process.wait()
    took.append(time.time() - started)
print(json.dumps({{"launcher": launcher - begun, "workers": took[0], "again": took[1], "begun": begun}}))
"""
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Floor:
    """Medians in seconds: until pods run, until torch is imported in the launcher, then in the workers, then once more.

    The second time nothing else starts at the same time, as when workers start again in pods that run.
    """

    pods: float
    launcher: float
    workers: float
    again: float

    @property
    def of_processes(self) -> float:
        """What a restart inside running pods cannot do without."""
        return self.again

    @property
    def of_pods(self) -> float:
        """What new pods cannot do without."""
        return self.pods + self.launcher + self.workers


def measure_floor(kubectl: Sequence[str], runs: int) -> Floor:
    """Start as many pods and processes as the training has, which only import what it imports.

    Raises:
        StepError: the pods do not come up.
    """
    found = [_once(kubectl, number) for number in range(runs)]
    return Floor(
        pods=median(each.pods for each in found),
        launcher=median(each.launcher for each in found),
        workers=median(each.workers for each in found),
        again=median(each.again for each in found),
    )


def _once(kubectl: Sequence[str], number: int) -> Floor:
    names = [f"floor-{number}-{node}" for node in range(NODES)]
    begun = time.time()
    for name in names:
        overrides = json.dumps({"spec": {"terminationGracePeriodSeconds": 0}})
        command = ["run", name, f"--image={IMAGE}", "--restart=Never", f"--overrides={overrides}", "--command", "--"]
        if output_of([*kubectl, *command, "python3", "-c", _PROGRAM]) is None:
            raise StepError(f"pod {name} cannot be created in namespace {NAMESPACE}")
    told = [_result(kubectl, name) for name in names]
    output_of([*kubectl, "delete", "pods", *names, "--wait=false"])
    return Floor(
        # Two requests of kubectl are in it, as two creations are in a recovery.
        pods=max(each["begun"] for each in told) - begun,
        launcher=max(each["launcher"] for each in told),
        workers=max(each["workers"] for each in told),
        again=max(each["again"] for each in told),
    )


def _result(kubectl: Sequence[str], name: str) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        text = output_of([*kubectl, "logs", name]) or ""
        if text.strip().endswith("}"):
            found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
            return found
        time.sleep(0.2)
    raise StepError(f"pod {name} has not ended within {_PATIENCE:.0f} s: kubectl -n {NAMESPACE} describe pod {name}")
