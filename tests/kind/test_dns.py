"""A name server that remembers for half a minute that a name does not exist, as managed clusters have it."""

import re
from collections.abc import Iterator
from datetime import datetime

import pytest
from jobs import TORCH_IMAGE, program, scripted
from kubectl import Kubectl, wait_until

pytestmark = pytest.mark.pod_security("baseline")

MET = re.compile(r"rank (\d) met the others after (\d+\.\d) s")
NEGATIVE_SECONDS = 30

MEET = """
import os, time
begin = time.time()
import torch.distributed as dist
dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} met the others after {time.time() - begin:.1f} s", flush=True)
dist.barrier()
os._exit(0)
"""


@pytest.fixture
def remembers_absence(operator: datetime) -> Iterator[None]:
    """CoreDNS with `cache 30` for the cluster's own domain too."""
    assert operator
    system = Kubectl("kube-system")
    found = system.get("configmap", "coredns")
    assert found is not None
    corefile = found["data"]["Corefile"]
    cached = re.sub(r"cache \d+ \{[^}]*\}|cache \d+", f"cache {NEGATIVE_SECONDS}", corefile)
    assert cached != corefile
    try:
        _configure(system, cached)
        yield
    finally:
        _configure(system, corefile)


def _configure(system: Kubectl, corefile: str) -> None:
    system.patch("configmap", "coredns", {"data": {"Corefile": corefile}})
    system("rollout", "restart", "deployment/coredns")
    system("rollout", "status", "deployment/coredns", "--timeout", "120s")


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.usefixtures("remembers_absence")
def test_no_node_waits_because_it_asked_for_node_0_before_that_was_there(kubectl: Kubectl) -> None:
    node = next(
        node["metadata"]["name"]
        for node in kubectl.list("nodes")
        if not node["spec"].get("taints") and "control-plane" not in node["metadata"]["name"]
    )
    # Node 1 of the job fits next to this pod, node 0 does not.
    kubectl.apply(blocker(node))
    kubectl("wait", "--for=condition=Ready", "pod/blocker", "--timeout", "60s")
    kubectl.apply(program("meet", MEET))
    kubectl.apply(scripted("late", config_map="meet", template={"spec": after_node_1(node)}))

    def waits() -> bool:
        pods = {pod["metadata"]["name"]: pod["status"] for pod in kubectl.list("pods", "ddpjob.dev/job=late")}
        return pods.get("late-a0-1", {}).get("phase") == "Running" and pods["late-a0-0"]["phase"] == "Pending"

    wait_until(waits, "node 1 to run without node 0", 60, lambda: kubectl.story("late"))
    wait_until(
        lambda: "waiting for node 0" in kubectl.logs("late-a0-1"),
        "node 1 to have looked for node 0",
        60,
        lambda: kubectl.story("late"),
    )
    kubectl("delete", "pod", "blocker", "--grace-period=0", "--force")
    kubectl.wait_for_phase("late", "Succeeded")
    met = {int(rank): float(seconds) for rank, seconds in MET.findall(kubectl.logs("late-a0-0"))}
    # Node 0 imports torch and waits for node 1, which had asked for it before: half of what an absent name is
    # remembered for is far more than the import takes.
    assert met[0] < NEGATIVE_SECONDS / 2, kubectl.story("late")


def test_a_node_that_cannot_resolve_node_0_is_named_while_it_waits(kubectl: Kubectl) -> None:
    kubectl.apply(program("meet", MEET))
    nowhere = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
    kubectl.apply(scripted("blind", config_map="meet", template={"spec": nowhere}))

    def explained() -> dict[str, str] | None:
        conditions = kubectl.job("blind").get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["reason"] == "NameNotResolved"), None)

    ready = wait_until(explained, "a condition to tell of DNS", 120, lambda: kubectl.story("blind"))
    assert ready["type"] == "RendezvousReady"
    assert ready["status"] == "False"
    assert "2/2 nodes are up, 1 cannot reach node 0; blind-a0-1: blind-a0-0.blind" in ready["message"]
    assert "the cluster's DNS" in ready["message"]
    assert kubectl.job("blind")["status"]["phase"] == "Starting"


def blocker(node: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "blocker"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "sleep",
                    "image": TORCH_IMAGE,
                    "command": ["sleep", "infinity"],
                    "resources": {"requests": {"cpu": "700m"}},
                }
            ],
        },
    }


def after_node_1(node: str) -> dict[str, object]:
    """Parts of a pod that put both pods on one node, ordinal 1 first: the only one that is near itself."""
    near = {"labelSelector": {"matchLabels": {"ddpjob.dev/ordinal": "1"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    resources = {"requests": {"cpu": "700m"}}
    return {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "affinity": affinity,
        "containers": [{"name": "trainer", "resources": resources}],
    }
