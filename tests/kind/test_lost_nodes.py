"""Nodes that are lost in three ways while a training runs there, and that come back later."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from jobs import TRAINER_IMAGE, program
from kubectl import Kubectl, wait_until
from steady import CLAIM, STEADY, claim, goes_on_as, log_of, losses, resilient, trains, undisturbed

from hack.cluster.engine import Engine, choose_engine
from hack.cluster.kind import LOG

pytestmark = [
    pytest.mark.alone,
    pytest.mark.pod_security("baseline"),
    pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="a node is lost for minutes: make test-full"),
    pytest.mark.skipif(os.environ.get("USE_EXISTING_CLUSTER") == "1", reason="stops nodes"),
    pytest.mark.timeout(900),
]

# The control plane takes a node for lost after about 50 s.
MARKED = 240
CHECKPOINT = re.compile(r"^step-(\d+)\.attempt-(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Node:
    """A node of the cluster, which is a container."""

    name: str
    kubectl: Kubectl
    engine: Engine

    def do(self, *arguments: str) -> None:
        assert self.engine.output(*arguments, timeout=120) is not None, f"{self.engine.program} {' '.join(arguments)}"

    def kubelet(self, verb: str) -> None:
        self.do("exec", self.name, "systemctl", verb, "kubelet")

    def wait_until_ready(self) -> None:
        self.kubectl("wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=180s", timeout=200)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return choose_engine(LOG)


@pytest.fixture
def trainings(kubectl: Kubectl) -> Kubectl:
    """A namespace with the program and its volume."""
    kubectl.apply(claim(), program("steady", STEADY))
    return kubectl


def node_of(kubectl: Kubectl, pod: str, engine: Engine) -> Node:
    """The node of a pod, once the operator is elsewhere: here only trainings lose their node."""
    found = kubectl.get("pod", pod)
    assert found is not None
    name = found["spec"]["nodeName"]
    system = Kubectl("ddpjob-system")
    if name in {each["spec"]["nodeName"] for each in system.list("pods")}:
        system("cordon", name)
        system("rollout", "restart", "deployment/ddpjob-operator")
        system("rollout", "status", "deployment/ddpjob-operator", "--timeout=120s")
        system("wait", "--for=delete", "pod", "--field-selector", f"spec.nodeName={name}", "--timeout=60s")
        system("uncordon", name)
    return Node(name, kubectl, engine)


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """All processes of a node stand still, as on a machine that hangs or whose network is gone."""
    node.do("pause", node.name)
    try:
        yield
    finally:
        node.do("unpause", node.name)


@contextmanager
def removed(node: Node) -> Iterator[None]:
    """The node is removed from the cluster, as the autoscaler does with a machine that is gone."""
    kept = node.kubectl.get("node", node.name)
    assert kept is not None
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        kept["metadata"].pop(field, None)
    kept["spec"].pop("taints", None)
    node.kubectl("delete", "node", node.name, "--wait=false")
    try:
        yield
    finally:
        # As it was: its pods' addresses and the routes to them are known to the others.
        node.kubectl("create", "-f", "-", stdin=json.dumps(kept))


def wait_for_attempt(kubectl: Kubectl, name: str, number: int) -> None:
    """Until an attempt makes steps."""

    def look() -> bool:
        status = kubectl.job(name)["status"]
        assert status["phase"] not in ("Succeeded", "Failed"), kubectl.story(name)
        progress = status.get("progress") or {}
        return bool(progress.get("attempt") == number and progress.get("step"))

    wait_until(look, f"{name} to train in attempt {number}", MARKED, lambda: kubectl.story(name))


def ended(kubectl: Kubectl, pod: str) -> bool:
    """Whether the trainer of a pod has ended, or its pod is no more."""
    found = kubectl.get("pod", pod)
    if found is None:
        return True
    return any("terminated" in each["state"] for each in found["status"].get("containerStatuses", []))


def succeeds_as_if_undisturbed(kubectl: Kubectl, name: str, expected: dict[int, str]) -> int:
    """The step at which its second attempt, the last one, went on."""
    status = kubectl.wait_for_phase(name, "Succeeded")["status"]
    assert status["attempt"] == 1, kubectl.story(name)
    return goes_on_as(expected, kubectl.logs(f"{name}-a1-0"))


def checkpoints(kubectl: Kubectl, name: str) -> list[tuple[int, int]]:
    """Step and attempt of a job's checkpoints, as a pod that mounts the volume sees them."""
    look = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"look-{name}"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "look",
                    "image": TRAINER_IMAGE,
                    "command": ["ls", f"/volume/{kubectl.job(name)['metadata']['uid']}"],
                    "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
                }
            ],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    }
    kubectl.apply(look)
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/look-{name}", "--timeout=60s")
    return [(int(step), int(attempt)) for step, attempt in CHECKPOINT.findall(kubectl.logs(f"look-{name}", "look"))]


def test_rank_0_of_a_frozen_node_comes_back_and_does_not_get_to_save(trainings: Kubectl, engine: Engine) -> None:
    kubectl, expected = trainings, undisturbed(trainings)
    # Both ranks are on that node: when they come back, nothing that they need is missing.
    kubectl.apply(resilient("frozen", nodes=1, procs=2))
    trains(kubectl, "frozen")
    node = node_of(kubectl, "frozen-a0-0", engine)
    with log_of(kubectl, "frozen-a0-0"):
        with frozen(node):
            wait_for_attempt(kubectl, "frozen", 1)
            restarts = kubectl.job("frozen")["status"]["restarts"]
            assert (restarts["counted"], restarts["lastReason"]) == (1, "NodeLost")
        wait_until(lambda: ended(kubectl, "frozen-a0-0"), "attempt 0 to end", MARKED, lambda: kubectl.story("frozen"))
        assert "attempt 1 writes checkpoints" in kubectl.logs("frozen-a0-0"), kubectl.story("frozen")
    step = succeeds_as_if_undisturbed(kubectl, "frozen", expected)
    found = checkpoints(kubectl, "frozen")
    assert max(found) == (max(expected), 1)
    assert all(saved <= step for saved, attempt in found if attempt == 0), found
    node.wait_until_ready()


def test_a_frozen_node_comes_back_to_ranks_that_have_gone_on_with_another_pod(
    trainings: Kubectl, engine: Engine
) -> None:
    kubectl, expected = trainings, undisturbed(trainings)
    # The operator may have to move first.
    kubectl.apply(program("steady", STEADY.replace("time.sleep(0.06)", "time.sleep(0.5)")))
    kubectl.apply(resilient("elastic", elastic={"maxNodes": 2}))
    trains(kubectl, "elastic", beyond=5)
    # Where node 0 runs, the ranks meet.
    node = node_of(kubectl, "elastic-a0-1", engine)
    first = kubectl.get("pod", "elastic-a0-0")
    assert first is not None
    assert first["spec"]["nodeName"] != node.name, "the nodes of a job are spread"
    stopped = max(losses(kubectl.logs("elastic-a0-0")))
    with frozen(node):

        def goes_on() -> bool:
            status = kubectl.job("elastic")["status"]
            assert (status["attempt"], status["phase"] == "Failed") == (0, False), kubectl.story("elastic")
            return max(losses(kubectl.logs("elastic-a0-0"))) > stopped + 20

        wait_until(goes_on, "the other node to go on", MARKED, lambda: kubectl.story("elastic"))
        restarts = kubectl.job("elastic")["status"]["restarts"]
        assert (restarts["counted"], restarts["lastReason"]) == (1, "NodeLost")
    status = kubectl.wait_for_phase("elastic", "Succeeded")["status"]
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["process"]) == (0, 1, 0)
    found = losses(kubectl.logs("elastic-a0-0"))
    assert found.items() <= expected.items()
    assert len(found) >= len(expected) - 1
    node.wait_until_ready()
    wait_until(lambda: kubectl.get("pod", "elastic-a0-1") is None, "the left pod to be removed", 120)


def test_a_node_that_is_removed_does_not_keep_its_job_and_comes_back_to_nothing(
    trainings: Kubectl, engine: Engine
) -> None:
    kubectl, expected = trainings, undisturbed(trainings)
    kubectl.apply(resilient("removed"))
    trains(kubectl, "removed")
    node = node_of(kubectl, "removed-a0-0", engine)
    processes = ["exec", node.name, "pgrep", "-f", "/program/main.py"]
    assert engine.output(*processes), "the ranks of that node are found while they run"
    with frozen(node), removed(node):
        wait_for_attempt(kubectl, "removed", 1)
    # What runs there still belongs to pods that are no more.
    succeeds_as_if_undisturbed(kubectl, "removed", expected)
    node.wait_until_ready()
    wait_until(lambda: engine.output(*processes) is None, "the left processes to be stopped", 120)


def test_a_pod_whose_kubelet_is_stopped_does_not_keep_the_next_attempt_waiting(
    trainings: Kubectl, engine: Engine
) -> None:
    kubectl, expected = trainings, undisturbed(trainings)
    kubectl.apply(resilient("deaf"))
    trains(kubectl, "deaf")
    node = node_of(kubectl, "deaf-a0-0", engine)
    node.kubelet("stop")
    try:
        kubectl("delete", "pod", "deaf-a0-1", "--grace-period=0", "--force")
        wait_for_attempt(kubectl, "deaf", 1)
        left = kubectl.get("pod", "deaf-a0-0")
        assert left is not None
        assert left["metadata"].get("deletionTimestamp"), "nobody can tell whether it runs"
        succeeds_as_if_undisturbed(kubectl, "deaf", expected)
        restarts = kubectl.job("deaf")["status"]["restarts"]
        assert (restarts["counted"], restarts["process"]) == (1, 0)
    finally:
        node.kubelet("start")
    node.wait_until_ready()
    wait_until(lambda: kubectl.get("pod", "deaf-a0-0") is None, "the left pod to be removed", 120)
