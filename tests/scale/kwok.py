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
    commands = (
        [str(kwok), kubeconfig, f"--config={_STAGES}", "--manage-all-nodes=true", "--node-ip=127.0.0.1", "-v=ERROR"],
        [
            str(plane.assets / "kube-scheduler"),
            kubeconfig,
            f"--authentication-kubeconfig={plane.admin_kubeconfig}",
            f"--authorization-kubeconfig={plane.admin_kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        ],
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (plane.folder / f"{Path(command[0]).name}.log").open("ab") as log:
                processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait_for(lambda: _all_ready(plane, count), f"{count} nodes to be ready", 60)
        for number in range(count):
            # A new node is tainted until the node lifecycle controller, which does not run here, sees that it is ready.
            plane.admin.patch(f"/api/v1/nodes/played-{number}", {"spec": {"taints": None}})
        yield
    finally:
        for process in processes:
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
