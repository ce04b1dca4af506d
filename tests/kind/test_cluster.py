"""The cluster that `make cluster` makes: what the tests of jobs rely on."""

import os
from typing import Any

import pytest
from kubectl import Kubectl, wait_until

pytestmark = pytest.mark.pod_security("baseline")

SHARED_CLASS = "ddpjob-shared"
TRAINER_UID = 1000


def pod(name: str, node: str, script: str, claim: str = "") -> dict[str, Any]:
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    mounts = [{"name": "shared", "mountPath": "/shared"}] if claim else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsUser": TRAINER_UID, "runAsGroup": TRAINER_UID},
            "volumes": volumes,
            "containers": [
                {
                    "name": "trainer",
                    "image": os.environ.get("DDPJOB_TORCH_IMAGE", "ddpjob-torch:cpu"),
                    "command": ["python3", "-c", script],
                    "volumeMounts": mounts,
                }
            ],
        },
    }


def finished(kubectl: Kubectl, name: str) -> str:
    """What a pod printed, once it has succeeded."""

    def look() -> bool:
        found = kubectl.get("pod", name)
        assert found is not None
        assert found["status"]["phase"] != "Failed", kubectl.logs(name)
        return bool(found["status"]["phase"] == "Succeeded")

    wait_until(look, f"{name} to succeed", 90, lambda: kubectl("describe", "pod", name))
    return kubectl.logs(name)


def workers() -> list[dict[str, Any]]:
    nodes = Kubectl().list("nodes")
    return [node for node in nodes if "node-role.kubernetes.io/control-plane" not in node["metadata"].get("labels", {})]


def has_shared_class() -> bool:
    return Kubectl().get("storageclass", SHARED_CLASS) is not None


def test_pods_on_two_nodes_see_one_file_that_the_trainers_user_wrote(kubectl: Kubectl) -> None:
    if not has_shared_class() and os.environ.get("USE_EXISTING_CLUSTER") == "1":
        pytest.skip(f"this cluster has no storage class {SHARED_CLASS}, which `make cluster` makes")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared"},
        "spec": {
            "storageClassName": SHARED_CLASS,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    first, second = (node["metadata"]["name"] for node in workers()[:2])
    kubectl.apply(claim, pod("writer", first, "open('/shared/epoch', 'w').write('7')", "shared"))
    finished(kubectl, "writer")
    kubectl.apply(pod("reader", second, "print(open('/shared/epoch').read())", "shared"))
    assert finished(kubectl, "reader").strip() == "7"


def test_a_pod_on_another_node_is_reached_by_each_of_its_addresses(kubectl: Kubectl) -> None:
    first, second = (node["metadata"]["name"] for node in workers()[:2])
    serve = "import socket; s = socket.create_server(('::', 9000), family=socket.AF_INET6, dualstack_ipv6=True)\n"
    serve += "while True: s.accept()[0].sendall(b'hello')"
    kubectl.apply(pod("server", first, serve))

    def addresses() -> list[str]:
        found = kubectl.get("pod", "server")
        assert found is not None
        running = found["status"]["phase"] == "Running"
        return [entry["ip"] for entry in found["status"].get("podIPs", [])] if running else []

    found = wait_until(addresses, "the server to have addresses")
    nodes = workers()[0]["spec"]["podCIDRs"]
    assert len(found) == len(nodes), "an address of each family that the cluster has"
    ask = (
        "import socket, time\n"
        f"for address in {found!r}:\n"
        "    for _ in range(40):\n"
        "        try: answer = socket.create_connection((address, 9000), 2).recv(5); break\n"
        "        except OSError: time.sleep(0.25)\n"
        "    print(address, answer)\n"
    )
    kubectl.apply(pod("client", second, ask))
    assert [line.split()[0] for line in finished(kubectl, "client").splitlines()] == found
