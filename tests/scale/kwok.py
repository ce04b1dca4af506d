"""Nodes that do not exist: a scheduler puts pods on them, and KWOK plays their kubelets with addresses of loopback."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.apiserver.controlplane import ApiError, ControlPlane, wait_for

PODS_PER_NODE: Final = 200
_STAGES: Final = Path(__file__).with_name("stages.yaml")


@contextmanager
def kwok_nodes(plane: ControlPlane, kwok: Path, count: int) -> Iterator[None]:
    """So many nodes, ready, each with room for 200 pods and loopback addresses of its own for them."""
    for number in range(count):
        plane.admin.create(_node(number))
    kubeconfig = f"--kubeconfig={plane.admin_kubeconfig}"
    command = [
        str(kwok),
        kubeconfig,
        f"--config={_STAGES}",
        "--manage-all-nodes=true",
        "--node-ip=127.0.0.1",
        "-v=ERROR",
    ]
    with (plane.folder / "kwok.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        plane.start_scheduler()
        wait_for(lambda: _all_ready(plane, count), f"{count} nodes to be ready", 60)
        for number in range(count):
            plane.admit_node(f"played-{number}")
        yield
    finally:
        plane.kill("kube-scheduler")
        process.kill()
        process.wait()


def _node(number: int) -> dict[str, object]:
    room = {"cpu": "1000", "memory": "1000Gi", "pods": str(PODS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"played-{number}", "labels": {"kubernetes.io/hostname": f"played-{number}"}},
        "spec": {"podCIDR": f"127.64.{number}.0/24", "podCIDRs": [f"127.64.{number}.0/24"]},
        "status": {"allocatable": room, "capacity": room},
    }


def _all_ready(plane: ControlPlane, count: int) -> bool:
    try:
        nodes = plane.admin.items("/api/v1/nodes")
    except ApiError:
        return False
    ready = [
        node
        for node in nodes
        for condition in node["status"].get("conditions") or []
        if (condition["type"], condition["status"]) == ("Ready", "True")
    ]
    return len(ready) == count
