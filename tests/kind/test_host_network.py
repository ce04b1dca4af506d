"""Jobs on their nodes' own network, as with `docker run --network=host`."""

from typing import Any

import pytest
from jobs import digits, program, scripted
from kubectl import Kubectl, wait_until
from test_examples import EPOCH, example

pytestmark = pytest.mark.pod_security("privileged")

HOST = {"spec": {"hostNetwork": True}}
# Tests run side by side, on the same nodes.
MEET_PORTS: dict[str, Any] = {"rendezvous": {"port": 29620}, "metrics": {"port": 19420}}
HOLD_PORTS: dict[str, Any] = {"rendezvous": {"port": 29630}, "metrics": {"port": 19430}}

# The ranks of two nodes add up over gloo, on the interface that the launcher has found.
MEET = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
where = f"on {socket.gethostname()} by {os.environ['GLOO_SOCKET_IFNAME']}"
print(f"rank {dist.get_rank()} {where} sum {total.item()}", flush=True)
dist.barrier()
os._exit(0)
"""
# Until it is asked to stop.
HOLD = "import signal; signal.pause()\n"


def addresses(kubectl: Kubectl, name: str) -> list[tuple[str, str]]:
    pods = kubectl.list("pods", f"ddpjob.dev/job={name}")
    return [(pod["status"].get("podIP", ""), pod["status"].get("hostIP", "-")) for pod in pods]


def scheduled(kubectl: Kubectl, name: str) -> dict[str, Any]:
    conditions = kubectl.job(name).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodsScheduled"), {"status": "", "message": ""})


@pytest.mark.full
def test_the_example_trains_on_its_nodes_network(kubectl: Kubectl) -> None:
    kubectl.apply(example("host-network"))
    kubectl.wait_for_phase("host-network", "Succeeded", timeout=300)
    lines = [EPOCH.findall(kubectl.logs(f"host-network-a0-{ordinal}")) for ordinal in (0, 1)]
    assert [len(found) for found in lines] == [100, 100]
    assert kubectl.job("host-network")["status"]["progress"]["percent"] == 100


@pytest.mark.full
def test_progress_is_read_at_the_addresses_of_the_nodes(kubectl: Kubectl) -> None:
    job = digits("long", epochs=10_000, template=HOST, rendezvous={"port": 29610}, metrics={"port": 19410})
    kubectl.apply(job)
    wait_until(
        lambda: kubectl.phase("long") == "Running" and kubectl.job("long")["status"]["summary"].get("eta"),
        "progress to be read",
        180,
        lambda: kubectl.story("long"),
    )
    assert all(pod == node for pod, node in addresses(kubectl, "long"))


def test_gloo_uses_the_interface_of_the_default_route_and_two_pods_share_no_node(kubectl: Kubectl) -> None:
    kubectl.apply(program("meet", MEET), scripted("meet", config_map="meet", template=HOST, **MEET_PORTS))
    kubectl.wait_for_phase("meet", "Succeeded")
    said = [kubectl.logs(f"meet-a0-{ordinal}") for ordinal in (0, 1)]
    nodes = {pod["spec"]["nodeName"] for pod in kubectl.list("pods", "ddpjob.dev/job=meet")}
    assert len(nodes) == 2
    for ordinal, log in enumerate(said):
        assert f"rank {ordinal} on " in log
        # The host name of such a pod is its node's.
        assert any(f" on {node} by eth0 sum 3" in log for node in nodes), log
        assert "host network: gloo uses eth0" in log


# tests/apiserver has it with a real scheduler.
@pytest.mark.full
def test_a_second_job_with_the_same_ports_names_the_first_and_runs_after_it(kubectl: Kubectl) -> None:
    kubectl.apply(program("hold", HOLD), scripted("holder", config_map="hold", template=HOST, **HOLD_PORTS))
    kubectl.wait_for_phase("holder", "Running")
    kubectl.apply(scripted("waiter", config_map="hold", nodes=1, template=HOST, **HOLD_PORTS))
    texts = (
        "DDPJob holder also takes 29630 (spec.rendezvous.port) and 19430 (spec.metrics.port)",
        "choose other ports",
    )
    wait_until(
        lambda: all(text in scheduled(kubectl, "waiter")["message"] for text in texts),
        "the second to tell why it waits",
        60,
        lambda: kubectl.story("waiter"),
    )
    kubectl("delete", "ddpjob", "holder", "--wait=true")
    kubectl.wait_for_phase("waiter", "Running")
