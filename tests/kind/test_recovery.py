"""Trainings to which something happens: they end as if nothing had, and tell what it was."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import TRAINER_IMAGE, program, scripted
from kubectl import Kubectl, wait_until
from states import JOB as KILLED
from states import KILLED_BEYOND, NAME, RANK, STATES, from_running_on, state_of
from steady import (
    EPOCHS,
    LOSS,
    RESUMED,
    SAVED,
    STEADY,
    STEPS_PER_EPOCH,
    claim,
    goes_on_as,
    losses,
    resilient,
    resumed_at,
    trains,
    undisturbed,
)

BIN = Path(sys.executable).parent

pytestmark = pytest.mark.timeout(600)


def uids(kubectl: Kubectl, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in kubectl.list("pods", f"ddpjob.dev/job={name}")}


def goes_on_without_it(kubectl: Kubectl, killed_at: int) -> str | None:
    """The log of the killed job's node 0, once it makes steps again and its status counts the new process."""
    log = kubectl.logs(f"{NAME}-a0-0")
    counted = kubectl.job(NAME)["status"]["restarts"].get("process") == 1
    return log if counted and max(losses(log)) > killed_at + 2 else None


def test_whatever_ends_on_the_way_the_loss_curve_is_that_of_an_undisturbed_run(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", STEADY))
    expected = undisturbed(kubectl)

    # A worker process is killed: the other one goes on. Then a pod is gone at once, as with its machine.
    kubectl.apply(KILLED)
    with kubectl.watching(NAME) as seen:
        kubectl.wait_for_phase(NAME, "Running")
        # By the log, to which the status is seconds behind.
        wait_until(
            lambda: max(losses(kubectl.logs(f"{NAME}-a0-0")), default=0) > KILLED_BEYOND[0],
            f"{NAME} to make steps",
            120,
            lambda: kubectl.story(NAME),
        )
        before = uids(kubectl, NAME)
        kubectl.signal_rank(f"{NAME}-a0-1", RANK, signal.SIGKILL)
        killed_at = max(losses(kubectl.logs(f"{NAME}-a0-0")))
        first = wait_until(
            lambda: goes_on_without_it(kubectl, killed_at), f"{NAME} to go on", 120, lambda: kubectl.story(NAME)
        )
        assert uids(kubectl, NAME) == before
        kubectl("delete", "pod", f"{NAME}-a0-1", "--grace-period=0", "--force")
        kubectl.wait_for_phase(NAME, "Succeeded")
    assert from_running_on(map(state_of, seen)) == STATES, kubectl.story(NAME)
    # The rank that was not killed has kept its process: it has lost no step, and made none again.
    assert RESUMED.search(first) is None
    made = [int(step) for step, _, _ in LOSS.findall(first)]
    # The step in which the rank was killed may have no mean loss, since that rank's part of it is gone.
    whole = list(range(1, made[-1] + 1))
    assert made == [step for step in whole if step in made]
    assert len(made) >= len(whole) - 1
    assert losses(first).items() <= expected.items()
    goes_on_as(expected, kubectl.logs(f"{NAME}-a1-0"))

    # Suspended and resumed: at that very step.
    kubectl.apply(resilient("paused"))
    trains(kubectl, "paused")
    kubectl.patch("ddpjob", "paused", {"spec": {"suspend": True}})
    progress = kubectl.wait_for_phase("paused", "Suspended")["status"]["progress"]
    assert progress["step"] == progress["lastCheckpointStep"]
    kubectl.patch("ddpjob", "paused", {"spec": {"suspend": False}})
    status = kubectl.wait_for_phase("paused", "Succeeded")["status"]
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["ignored"]) == (1, 0, 0)
    assert goes_on_as(expected, kubectl.logs("paused-a1-0")) == progress["step"]


@pytest.mark.full
def test_a_drained_node_costs_no_step_and_no_restart_that_counts(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", STEADY))
    expected = undisturbed(kubectl)
    kubectl.apply(resilient("drained"))
    trains(kubectl, "drained")
    kubectl.evict("drained-a0-1")
    status = kubectl.wait_for_phase("drained", "Succeeded")["status"]
    assert (status["restarts"]["ignored"], status["restarts"]["counted"], status["attempt"]) == (1, 0, 1)
    first, second = kubectl.logs("drained-a0-0"), kubectl.logs("drained-a1-0")
    saved = [int(step) for step in SAVED.findall(first)]
    assert goes_on_as(expected, second) == saved[-1]
    assert max(losses(first)) == saved[-1], "no step was made that was not saved"


# It stops as one that is suspended does, which saves its last step above.
@pytest.mark.full
def test_a_job_whose_time_is_up_saves_its_last_step(kubectl: Kubectl) -> None:
    kubectl.apply(claim(), program("steady", STEADY), resilient("timed"))
    trains(kubectl, "timed")
    # Less than it has had by now, however long its start took here.
    kubectl.patch("ddpjob", "timed", {"spec": {"activeDeadlineSeconds": 1}})
    status = kubectl.wait_for_phase("timed", "Failed")["status"]
    assert status["failure"]["reason"] == "DeadlineExceeded"
    known = status["progress"]["step"]

    def saved() -> bool:
        progress = kubectl.job("timed")["status"]["progress"]
        assert progress["step"] < EPOCHS * STEPS_PER_EPOCH
        return bool(progress["step"] >= known and progress["step"] == progress["lastCheckpointStep"])

    wait_until(saved, "the ranks to save and to say so", 60, lambda: kubectl.story("timed"))


PRIORITY = "ddpjob-test-preempts"


def request(cpus: float) -> dict[str, Any]:
    return {"requests": {"cpu": f"{round(cpus * 1000)}m"}}


def preemptor(node_selector: dict[str, str], cpus: float) -> tuple[dict[str, Any], ...]:
    """A pod that is more important than any other, and its priority."""
    container = {
        "name": "sleep",
        "image": TRAINER_IMAGE,
        "command": ["sleep", "infinity"],
        "resources": request(cpus),
    }
    spec = {
        "nodeSelector": node_selector,
        "priorityClassName": PRIORITY,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return (
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": PRIORITY},
            "value": 1000,
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "preemptor"}, "spec": spec},
    )


@pytest.mark.alone
@pytest.mark.pod_security("baseline")
@pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="goes the way of an eviction: make test-full")
def test_a_preempted_job_saves_and_goes_on_at_that_step_when_there_is_room_again(kubectl: Kubectl) -> None:
    node = next(node for node in kubectl.list("nodes") if not node["spec"].get("taints"))
    cpus = float(node["status"]["allocatable"]["cpu"])
    here = {"kubernetes.io/hostname": node["metadata"]["labels"]["kubernetes.io/hostname"]}
    low = resilient("low", template={"spec": {"nodeSelector": here}})
    low["spec"]["trainer"]["resources"] = request(cpus / 4)
    kubectl.apply(claim(), program("steady", STEADY), low)
    trains(kubectl, "low")
    try:
        # Less is free next to the job, and more without one of its pods.
        kubectl.apply(*preemptor(here, cpus * 0.55))
        kubectl("wait", "--for=condition=Ready", "pod/preemptor", "--timeout=120s", timeout=150)

        def waits_for_room() -> bool:
            conditions = kubectl.job("low")["status"]["conditions"]
            return any(item["type"] == "PodsScheduled" and item["reason"] == "Unschedulable" for item in conditions)

        wait_until(waits_for_room, "the next attempt to have no room", 60, lambda: kubectl.story("low"))
        progress = kubectl.job("low")["status"]["progress"]
        assert progress["step"] == progress["lastCheckpointStep"]
    finally:
        kubectl("delete", "pod", "preemptor", "--ignore-not-found")
        kubectl("delete", "priorityclass", PRIORITY, "--ignore-not-found")
    status = kubectl.wait_for_phase("low", "Succeeded")["status"]
    assert (status["restarts"]["ignored"], status["restarts"]["counted"], status["attempt"]) == (1, 0, 1)
    assert resumed_at(kubectl.logs("low-a1-0")) == progress["step"]


def a_rank_hangs(kubectl: Kubectl, name: str, *, procs: int, rank: int, action: str, how: signal.Signals) -> None:
    """A rank of node 1 is stopped, or never leaves a loop, in a job of two nodes whose deadline has an action."""
    deadline = {"seconds": 6, "action": action}
    kubectl.apply(
        claim(),
        program("steady", STEADY),
        resilient(name, procs=procs, checkpoint=None, progressDeadline=deadline, gracePeriodSeconds=5),
    )
    trains(kubectl, name)
    kubectl.signal_rank(f"{name}-a0-1", rank, how)


# As the next one, restarted.
@pytest.mark.full
def test_a_rank_that_hangs_is_named_and_the_job_goes_on(kubectl: Kubectl) -> None:
    a_rank_hangs(kubectl, "hangs", procs=1, rank=1, action="Restart", how=signal.SIGSTOP)
    status = kubectl.wait_for_phase("hangs", "Succeeded")["status"]
    assert (status["attempt"], status["restarts"]["counted"], "failure" in status) == (1, 1, False)
    assert status["restarts"]["lastReason"] == "TrainingStalled"
    events = kubectl("get", "events", "--field-selector", "involvedObject.name=hangs,involvedObject.kind=DDPJob")
    assert re.search(r"TrainingStalled .*no step for \d+ s .*rank 1 \(node 1.*\) does not respond", events), events


def test_a_rank_that_never_leaves_a_loop_is_named_with_its_own_stack_which_outlives_its_pod(kubectl: Kubectl) -> None:
    a_rank_hangs(kubectl, "stuck", procs=2, rank=2, action="Fail", how=signal.SIGUSR1)
    status = kubectl.wait_for_phase("stuck", "Failed")["status"]
    failure = status["failure"]
    assert (failure["class"], failure["reason"], failure["rank"]) == ("Stalled", "TrainingStalled", 2)
    assert re.match(r"rank 2 hangs in:\n(?s:.*)main\.py\", line \d+, in spin\n", failure["traceback"]), failure
    stacks = {stack["rank"]: stack["text"] for stack in status["stacks"]}
    # Rank 2 takes no part in the exchange of gradients, nor in that of a log step's loss.
    waits = [text for rank, text in stacks.items() if rank != 2]
    assert waits
    assert all(re.search(r"backward|all_reduce|exchange\.py\", line \d+, in result\n", text) for text in waits), waits
    logs = [str(BIN / "ddpjob"), "logs", "stuck", "-n", kubectl.namespace, "--attempt", "0", "--rank", "2"]
    kubectl("wait", "--for=delete", "pod/stuck-a0-1", "--timeout=60s", timeout=90)
    told = subprocess.run(logs, capture_output=True, text=True, check=True)
    assert ", in spin" in told.stdout


# Once is a mistake of the program that is overcome, twice is one that a rule knows.
EXITS = """
import os, sys
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
attempt = int(os.environ["DDPJOB_ATTEMPT"])
if dist.get_rank() == 1:
    sys.exit(41 + attempt)
dist.barrier()
"""


def test_static_rendezvous_restarts_as_a_whole_and_a_rule_ends_what_cannot_be_helped(kubectl: Kubectl) -> None:
    kubectl.apply(program("exits", EXITS))
    rules = [{"action": "Fail", "exitCodes": [42]}]
    kubectl.apply(scripted("exits", config_map="exits", rendezvous={"backend": "static"}, restart={"rules": rules}))
    status = kubectl.wait_for_phase("exits", "Failed")["status"]
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["process"]) == (1, 1, 0)
    assert (status["failure"]["rank"], status["failure"]["exitCode"]) == (1, 42)
    failed = next(condition for condition in status["conditions"] if condition["type"] == "Failed")
    assert failed["reason"] == "FailedByRule"
