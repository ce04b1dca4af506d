"""The addresses by which nodes meet, on a cluster of whichever family: make test-full has one of IPv6 alone too."""

import ipaddress
import re
from typing import Any

import pytest
from jobs import digits, program, scripted
from kubectl import Kubectl, wait_until

pytestmark = pytest.mark.pod_security("privileged")

# Node 0's name has its addresses when that node is up: the ranks have met before they look.
LOOK = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
found = socket.getaddrinfo(os.environ["MASTER_ADDR"], None, type=socket.SOCK_STREAM)
families = sorted({"IPv6" if family == socket.AF_INET6 else "IPv4" for family, *_ in found})
os.write(1, f"rank {dist.get_rank()} sum {total.item()} families {'+'.join(families)}\\n".encode())
dist.barrier()
os._exit(0)
"""


@pytest.fixture
def families(kubectl: Kubectl) -> list[str]:
    """Those of the pods of this cluster, by the ranges that its nodes have for them."""
    ranges = {cidr for node in kubectl.list("nodes") for cidr in node["spec"]["podCIDRs"]}
    return sorted({f"IPv{ipaddress.ip_network(cidr).version}" for cidr in ranges})


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("c10d", {}),
        pytest.param("static", {"rendezvous": {"backend": "static"}}, marks=pytest.mark.full),
        pytest.param("python", {"launcher": "python"}, marks=pytest.mark.full),
        pytest.param(
            "host",
            {"template": {"spec": {"hostNetwork": True}}, "rendezvous": {"port": 29640}, "metrics": {"port": 19440}},
            marks=pytest.mark.full,
        ),
    ],
)
def test_nodes_meet_at_a_name_with_an_address_of_each_family_of_the_cluster(
    kubectl: Kubectl, families: list[str], name: str, spec: dict[str, Any]
) -> None:
    kubectl.apply(program(name, LOOK), scripted(name, config_map=name, **spec))
    kubectl.wait_for_phase(name, "Succeeded")
    # Those of a node are its own, whatever its pods have.
    expected = re.escape("+".join(families)) if name != "host" else r"\S+"
    for ordinal in (0, 1):
        assert re.search(rf"rank {ordinal} sum 3 families {expected}\n", kubectl.logs(f"{name}-a0-{ordinal}"))
    service = kubectl.get("service", name)
    assert service is not None
    assert (service["spec"]["ipFamilyPolicy"], sorted(service["spec"]["ipFamilies"])) == ("PreferDualStack", families)


@pytest.mark.full
def test_progress_is_read_and_a_rank_that_is_killed_comes_back(kubectl: Kubectl) -> None:
    kubectl.apply(digits("long", epochs=10_000))
    wait_until(
        lambda: kubectl.phase("long") == "Running" and kubectl.job("long")["status"]["summary"].get("eta"),
        "progress to be read",
        180,
        lambda: kubectl.story("long"),
    )
    kubectl.signal_rank("long-a0-1", 2, 9)
    wait_until(
        lambda: kubectl.job("long")["status"]["restarts"]["process"] == 1,
        "the workers to start again in the running pods",
        120,
        lambda: kubectl.story("long"),
    )
