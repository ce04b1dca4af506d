"""Ranks that are slower than the others for three reasons are named, and one of them is moved to another node."""

from typing import Any

import pytest
from jobs import TRAINER_IMAGE, program, scripted
from kubectl import Kubectl, wait_until
from steady import CLAIM, claim, resumed_at, trains

pytestmark = pytest.mark.timeout(300)

# In its first attempt, rank 1 is slow: its data takes time, or other processes use up what the limit of its container
# allows. All ranks compute alike, measured by the time of the processor and not of the clock.
PROGRAM = """
import subprocess, sys, time, torch
from torch.utils.data import Dataset
from ddpjob_trainer import Settings, configure_logging, current_environment, process_group, train

environment = current_environment()
configure_logging(environment)

class Numbers(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((4,), index / 1e5)

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def loss(model, batch):
    compute(0.01)
    return model(batch).square().mean()

with process_group(environment) as group:
    reason = sys.argv[1] if group.rank == 1 and environment.job.attempt == 0 else ""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (reason == "cpu"))]
    try:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        train(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            loss,
            Numbers(0.02 if reason == "data" else 0),
            Settings(total_epochs=1, batch_size=2, log_every=5, save_every_steps=20),
            group=group,
        )
    finally:
        for each in others:
            each.kill()
"""


def slow(name: str, reason: str, resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    job = scripted(name, config_map="slow", **spec)
    job["spec"]["trainer"].update(image=TRAINER_IMAGE, args=[reason], resources=resources)
    return job


def slowest(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """The rank that is named, with the pod and the node that it runs on."""

    def look() -> dict[str, Any] | None:
        status = kubectl.job(name).get("status", {})
        assert status.get("phase") not in ("Succeeded", "Failed"), kubectl.story(name)
        found: dict[str, Any] | None = status.get("slowest")
        return found

    found = wait_until(look, f"a rank of {name} to be named", 150, lambda: kubectl.story(name))
    assert found["nodeName"] == node_of(kubectl, found["pod"])
    return found


def node_of(kubectl: Kubectl, name: str) -> str:
    pod = kubectl.get("pod", name)
    assert pod is not None
    node: str = pod["spec"]["nodeName"]
    return node


def test_a_rank_that_its_cpu_limit_holds_back_and_one_that_waits_for_its_data_are_named(kubectl: Kubectl) -> None:
    limited = {"limits": {"cpu": "500m"}, "requests": {"cpu": "50m"}}
    kubectl.apply(program("slow", PROGRAM), slow("limited", "cpu", limited), slow("starved", "data", {}))
    for name, what in (("starved", "Data"), ("limited", "Computing")):
        found = slowest(kubectl, name)
        named = (found["rank"], found["ordinal"], found["pod"], found["attempt"], found["what"])
        assert named == (1, 1, f"{name}-a0-1", 0, what), kubectl.story(name)
        # Several times as long, also where other programs slow down both of its ranks.
        assert found["factor"] >= 1.5


# The pods of the first attempt run on different nodes. Then nothing keeps them apart, so that the other one has room.
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"ddpjob.dev/job": "moved", "ddpjob.dev/attempt": "0"}},
                }
            ]
        }
    },
    # In place of the scheduler's own, which would spread them.
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"ddpjob.dev/job": "another"}},
        }
    ],
}


def next_attempt(kubectl: Kubectl) -> dict[str, Any]:
    """The job's status once its next attempt trains."""

    def look() -> dict[str, Any] | None:
        status: dict[str, Any] = kubectl.job("moved").get("status", {})
        assert status.get("phase") not in ("Succeeded", "Failed"), kubectl.story("moved")
        trains = status["attempt"] == 1 and status["progress"].get("attempt") == 1
        return status if trains and status["phase"] == "Running" else None

    return wait_until(look, "the next attempt to train", 120, lambda: kubectl.story("moved"))


def test_a_slow_rank_is_moved_to_another_node_and_no_step_is_lost(kubectl: Kubectl) -> None:
    job = slow(
        "moved",
        "data",
        {},
        template={"spec": APART},
        checkpoint={"claimName": CLAIM},
        slowRank={"action": "Replace", "seconds": 5},
    )
    kubectl.apply(claim(), program("slow", PROGRAM), job)
    trains(kubectl, "moved", beyond=0)
    with kubectl.following("moved-a0-0") as log:
        found = slowest(kubectl, "moved")
        status = next_attempt(kubectl)
        saved = log()
    replaced = status["replaced"]
    assert (replaced["rank"], replaced["attempt"], replaced["nodeName"]) == (1, 0, found["nodeName"])
    assert "slowest" not in status
    assert status["restarts"]["counted"] == 0
    assert node_of(kubectl, "moved-a1-1") != found["nodeName"]
    # All ranks had time to save their last step before they ended.
    step = resumed_at(kubectl.logs("moved-a1-0"))
    assert f"all ranks stop after step {step} (saved)" in saved
