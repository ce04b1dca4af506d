"""A training that takes its time, saves, and ends the same whatever happens to it on the way."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobs import TRAINER_IMAGE, program, scripted
from kubectl import Kubectl, wait_until

EPOCHS, STEPS_PER_EPOCH = 17, 10
LOSS = re.compile(r"step (\d+)/(\d+) \| loss (\S+)")
RESUMED = re.compile(r"resumed in epoch \d+ after step (\d+)")
SAVED = re.compile(r"checkpoint at step (\d+)")
CLAIM = "shared"
# A pod that carries it is kept by the API server, so that its log can be read after its end.
KEEP = "ddpjob.dev/kept-by-a-test"

# Its steps take the time that they sleep, so that a test can do something meanwhile on any machine. With two ranks the
# sum of two gradients is the same in whatever order; with more, DDP's buckets of a process' first step are other ones
# than of its later steps, and with them the last digits.
STEADY = f"""
import signal, time, torch
from torch.utils.data import TensorDataset
from ddpjob_trainer import Listener, Settings, configure_logging, current_environment, process_group, train

def spin(*_):
    while True:
        pass

signal.signal(signal.SIGUSR1, spin)

class Pace(Listener):
    def step_finished(self, step, samples, seconds, data_seconds):
        time.sleep(0.06)

environment = current_environment()
configure_logging(environment)
with process_group(environment) as group:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.3), torch.nn.Linear(32, 1))
    samples = 8 * {STEPS_PER_EPOCH} * group.world_size
    train(
        model,
        torch.optim.AdamW(model.parameters(), lr=0.01),
        loss=lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
        dataset=TensorDataset(torch.randn(samples, 16), torch.randn(samples, 1)),
        settings=Settings(total_epochs={EPOCHS}, batch_size=8, save_every=2, log_every=1),
        group=group,
        listeners=(Pace(),),
    )
"""


def claim(name: str = CLAIM) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "ddpjob-shared",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def resilient(name: str, **spec: Any) -> dict[str, Any]:
    job = scripted(name, config_map="steady", **{"checkpoint": {"claimName": CLAIM}, **spec})
    job["spec"]["trainer"]["image"] = TRAINER_IMAGE
    return job


def train_longer(kubectl: Kubectl, times: int) -> dict[str, Any]:
    """Start a job `digits` of so many times as many epochs as usual, without checkpoints; its status once it trains."""
    longer = STEADY.replace(f"total_epochs={EPOCHS}", f"total_epochs={times * EPOCHS}")
    kubectl.apply(program("longer", longer))
    job = scripted("digits", config_map="longer")
    job["spec"]["trainer"]["image"] = TRAINER_IMAGE
    kubectl.apply(job)
    return trains(kubectl, "digits")


def losses(log: str) -> dict[int, str]:
    """Step to loss, as rank 0 printed it; of a step that was made twice, the last."""
    return {int(step): loss for step, _, loss in LOSS.findall(log)}


def trains(kubectl: Kubectl, name: str, beyond: int = 20) -> dict[str, Any]:
    """The job's status once it has made some steps."""

    def look() -> dict[str, Any] | None:
        status: dict[str, Any] = kubectl.job(name).get("status", {})
        assert status.get("phase") not in ("Succeeded", "Failed"), kubectl.story(name)
        return status if (status.get("progress") or {}).get("step", 0) > beyond else None

    return wait_until(look, f"{name} to make steps", 120, lambda: kubectl.story(name))


def resumed_at(log: str) -> int:
    found = RESUMED.search(log)
    assert found is not None, log
    return int(found[1])


def undisturbed(kubectl: Kubectl) -> dict[int, str]:
    """The losses of a job to which nothing happens."""
    kubectl.apply(resilient("undisturbed"))
    kubectl.wait_for_phase("undisturbed", "Succeeded")
    found = losses(kubectl.logs("undisturbed-a0-0"))
    assert len(found) == EPOCHS * STEPS_PER_EPOCH
    return found


def goes_on_as(expected: dict[int, str], log: str) -> int:
    """The step after which an attempt went on, with the losses of an undisturbed run from there to the end."""
    step = resumed_at(log)
    assert step > 0
    assert losses(log) == {number: loss for number, loss in expected.items() if number > step}
    return step


@contextmanager
def log_of(kubectl: Kubectl, pod: str) -> Iterator[None]:
    """A pod that is deleted stays until the end, and with it its log."""
    kubectl.patch("pod", pod, {"metadata": {"finalizers": [KEEP]}})
    try:
        yield
    finally:
        kubectl.patch("pod", pod, {"metadata": {"finalizers": None}})
