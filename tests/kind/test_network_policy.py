"""Pods of another namespace attack a training and the operator: with NetworkPolicies they reach neither."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from jobs import TORCH_IMAGE, TRAINER_IMAGE, program, scripted
from kubectl import Kubectl, wait_until
from steady import EPOCHS, STEADY

from hack.cluster.deploy import NAMESPACE, TESTED, deploy

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(
        os.environ.get("USE_EXISTING_CLUSTER") == "1", reason="it is not known whether this cluster enforces policies"
    ),
    pytest.mark.timeout(300),
]

OVERLAY = "manifests/overlays/network-policies"
STORE, METRICS, OPERATOR = 29500, 9401, 8080
LONG = STEADY.replace(f"total_epochs={EPOCHS}", f"total_epochs={100 * EPOCHS}")
# Other ports are refused, or do not answer.
CONNECT = """
import socket, sys
for port in map(int, sys.argv[2:]):
    try:
        socket.create_connection((sys.argv[1], port), timeout=1).close()
    except OSError:
        continue
    print(port)
"""


@pytest.fixture
def operators() -> Iterator[None]:
    """Operators other than that of the other tests, which is there again afterwards."""
    try:
        yield
    finally:
        deploy(overlay=TESTED)
        Kubectl(NAMESPACE)("delete", "networkpolicy", "ddpjob-operator", "--ignore-not-found")


@pytest.mark.usefixtures("operators")
def test_the_store_of_a_training_and_the_operators_port_are_open_without_policies_and_closed_with_them(
    kubectl: Kubectl, elsewhere: Kubectl
) -> None:
    deploy()
    kubectl.apply(program("long", LONG), training("long"), idle("neighbour"))
    elsewhere.apply(idle("attacker"))
    store = address_of(kubectl, trains(kubectl, "long"))
    # By its labels a pod of the job.
    uid = kubectl.job("long")["metadata"]["uid"]
    elsewhere.apply(idle("forger", {"ddpjob.dev/uid": uid, "app.kubernetes.io/managed-by": "ddpjob"}))
    intruders = ((elsewhere, "attacker"), (elsewhere, "forger"), (kubectl, "neighbour"))
    for where, name in intruders:
        where("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
        assert reached(where, name, store, STORE, METRICS) == [STORE, METRICS], f"{name} without policies"
    assert reached(elsewhere, "attacker", operator(), OPERATOR) == [OPERATOR]

    deploy(overlay=OVERLAY)
    kubectl.apply(program("short", STEADY), training("short"))
    # A job that runs already is closed too, and goes on.
    wait_until(lambda: kubectl.get("networkpolicy", "long"), "the running job to get its policy", 30)
    wait_until(lambda: not reached(elsewhere, "attacker", store, STORE), "the policy to be enforced", 30)
    for where, name in intruders:
        assert reached(where, name, store, STORE, METRICS) == [], f"{name} with policies"
    assert reached(elsewhere, "attacker", operator(), OPERATOR) == []
    # What is opened by hand is open until the operator has closed it again.
    kubectl("patch", "networkpolicy", "long", "--type=merge", "-p", '{"spec": {"ingress": [{}]}}')
    wait_until(lambda: {} not in rules(kubectl, "long"), "the policy to be put right", 30)
    wait_until(lambda: not reached(elsewhere, "attacker", store, STORE), "the policy to be enforced", 30)
    before = steps(kubectl, "long")
    wait_until(lambda: steps(kubectl, "long") > before, "newer steps", 60, lambda: kubectl.story("long"))

    # One that began with its policy has met, and has shown its progress to the end.
    ended = kubectl.wait_for_phase("short", "Succeeded")["status"]
    for status in (ended, kubectl.job("long")["status"]):
        assert (status["attempt"], status["restarts"]["counted"]) == (0, 0)
    assert ended["progress"]["percent"] == 100


def training(name: str) -> dict[str, Any]:
    job = scripted(name, config_map=name)
    job["spec"]["trainer"]["image"] = TRAINER_IMAGE
    return job


def idle(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod in which a test runs programs."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "trainer",
        "image": TORCH_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "securityContext": context,
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"terminationGracePeriodSeconds": 0, "securityContext": user, "containers": [container]},
    }


def reached(where: Kubectl, pod: str, address: str, *ports: int) -> list[int]:
    """Those of the ports that the pod can connect to."""
    said = where("exec", pod, "--", "python3", "-c", CONNECT, address, *map(str, ports))
    return [int(port) for port in said.split()]


def trains(kubectl: Kubectl, name: str) -> str:
    """The job's node 0, once its steps are shown."""
    kubectl.wait_for_phase(name, "Running")
    wait_until(lambda: steps(kubectl, name), "its steps to be shown", 60, lambda: kubectl.story(name))
    return f"{name}-a0-0"


def steps(kubectl: Kubectl, name: str) -> int:
    return int(kubectl.job(name)["status"].get("progress", {}).get("step", 0))


def address_of(kubectl: Kubectl, pod: str) -> str:
    found = kubectl.get("pod", pod)
    assert found is not None
    return str(found["status"]["podIP"])


def rules(kubectl: Kubectl, name: str) -> list[Any]:
    policy = kubectl.get("networkpolicy", name)
    return policy["spec"]["ingress"] if policy is not None else [{}]


def operator() -> str:
    """Address of the operator's pod, whose probes succeed: the kubelet reaches its port in any case."""
    pods = Kubectl(NAMESPACE).list("pods", "app.kubernetes.io/name=ddpjob-operator")
    (pod,) = (each for each in pods if not each["metadata"].get("deletionTimestamp"))
    assert all(status["ready"] for status in pod["status"]["containerStatuses"])
    return str(pod["status"]["podIP"])
