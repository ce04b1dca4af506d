"""Jobs on the host network: their pods, and what is said where their nodes' ports are taken."""

from dataclasses import replace
from typing import Any

import pytest
from world import World, environment_of, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.host_network import ports_in_common, ports_of
from ddpjob_core.children.pod import build_pod
from ddpjob_core.engine.caches import Caches, groups_of
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observed import JobRecord, PodRecord, ServiceRecord, Waiting

HOST: dict[str, Any] = {"spec": {"hostNetwork": True}}
NO_PORTS = (
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't have free ports for the requested "
    "pod ports. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)


def job(name: str = "digits", namespace: str = "ml", **fields: Any) -> JobRecord:
    return JobRecord(namespace, name, f"uid-{name}", "1", 1, deleting=False, spec=spec_of(**fields))


def pod_of(record: JobRecord) -> dict[str, Any]:
    assert record.spec is not None
    return build_pod(record, record.spec, 0, 1)["spec"]


@pytest.mark.parametrize(
    ("template", "policy", "announced"),
    [
        ({}, None, False),
        ({"spec": {"hostNetwork": False}}, None, False),
        ({"spec": {"dnsPolicy": "Default"}}, "Default", False),
        (HOST, "ClusterFirstWithHostNet", True),
        ({"spec": {"hostNetwork": True, "dnsPolicy": "None"}}, "None", True),
    ],
)
def test_pods_on_the_host_network_ask_the_cluster_s_name_server_unless_told_otherwise(
    template: dict[str, Any], policy: str | None, *, announced: bool
) -> None:
    assert template_errors(template) == []
    record = job(template=template)
    assert record.spec is not None
    spec = pod_of(record)
    assert spec.get("dnsPolicy") == policy
    assert ("DDPJOB_HOST_NETWORK" in environment_of(record, record.spec)) is announced
    assert (spec["hostname"], spec["subdomain"]) == ("digits-a0-1", "digits")


def test_the_ports_of_a_pod_come_from_the_spec() -> None:
    record = job(template=HOST, procsPerNode=2, rendezvous={"port": 12355}, metrics={"port": 19401})
    assert record.spec is not None
    taken = {port for ports in ports_of(record.spec, 2).values() for port in ports}
    assert {port["containerPort"] for port in pod_of(record)["containers"][0]["ports"]} == taken
    assert taken == {12355, 19401, 19402}


@pytest.mark.parametrize(
    ("theirs", "shared"),
    [
        ({"port": 29500}, {"spec.rendezvous.port": [29500], "spec.metrics.port": [9401, 9402]}),
        ({"port": 29501}, {"spec.metrics.port": [9401, 9402]}),
        ({"port": 29501, "metrics": 9402}, {"spec.metrics.port": [9402]}),
        ({"port": 9401, "metrics": 9405}, {"spec.metrics.port": [9401]}),
        ({"port": 29501, "metrics": 9403}, {}),
        ({"port": 30000, "metrics": 29499}, {"spec.rendezvous.port": [29500]}),
    ],
)
def test_ports_in_common_are_reported_with_the_field_that_moves_them(
    theirs: dict[str, int], shared: dict[str, list[int]]
) -> None:
    other = spec_of(rendezvous={"port": theirs["port"]}, metrics={"port": theirs.get("metrics", 9401)})
    found = ports_in_common(ports_of(spec_of(), 2), ports_of(other, 2))
    assert {field: list(ports) for field, ports in found.items()} == shared


def scheduling(world: World) -> str:
    world.settle()
    for name in world.pods:
        world.pods[name] = replace(world.pods[name], obstacle=Waiting("Unschedulable", NO_PORTS))
    world.advance(6)
    world.settle()
    assert world.status is not None
    condition = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert condition is not None
    return condition.message


def test_a_job_whose_ports_another_job_has_says_which_job_which_ports_and_what_to_do() -> None:
    rivals = {"other": ports_of(spec_of(metrics={"port": 9500}), 1)}
    message = scheduling(World(spec=spec_of(template=HOST), port_rivals=rivals))
    assert message == (
        "0/2 pods have a node; pods digits-a0-0, digits-a0-1 (2): Unschedulable: on the host network, each port "
        "exists once per node; DDPJob other also takes 29500 (spec.rendezvous.port): choose other ports for one of the "
        "jobs (spec.rendezvous.port, spec.metrics.port), wait until it has ended, or request fewer "
        "nodes; "
        f"the scheduler says: {NO_PORTS}"
    )


def test_ports_of_an_unknown_owner_are_reported_with_the_fields_that_move_them() -> None:
    message = scheduling(World(spec=spec_of(template=HOST, procsPerNode=3)))
    assert (
        "holds one of 29500 (spec.rendezvous.port) and 9401-9403 (spec.metrics.port) on each remaining node" in message
    )


def test_a_host_port_without_the_host_network_is_the_scheduler_s_business() -> None:
    assert "check spec.trainer.resources" in scheduling(World())


def test_only_jobs_of_the_same_namespace_whose_pods_have_nodes_are_named() -> None:
    caches = Caches(
        jobs=Store[JobRecord](),
        pods=Store[PodRecord](groups=groups_of),
        services=Store[ServiceRecord](groups=groups_of),
    )
    ours = job(template=HOST)
    others = {
        "holds": job("holds", template=HOST),
        "waits": job("waits", template=HOST),
        "ended": job("ended", template=HOST),
        "elsewhere": job("elsewhere", "other", template=HOST),
        "apart": job("apart", template=HOST, rendezvous={"port": 4000}, metrics={"port": 5000}),
        "own-network": job("own-network"),
    }
    nodes = dict.fromkeys(others, "node-1") | {"waits": None}
    for record in (ours, *others.values()):
        caches.jobs.seen(record)
    for name, record in others.items():
        caches.pods.seen(pod_record(record, node=nodes[name], phase="Failed" if name == "ended" else "Running"))
    caches.pods.seen(pod_record(ours))
    assert caches.port_rivals(ours) == {}
    caches.pods.seen(replace(pod_record(ours), resource_version="2", obstacle=Waiting("Unschedulable", NO_PORTS)))
    assert list(caches.port_rivals(ours)) == ["holds"]


def pod_record(record: JobRecord, *, node: str | None = None, phase: str = "Pending") -> PodRecord:
    name = f"{record.name}-a0-0"
    return PodRecord(record.namespace, name, f"uid-{name}", "1", record.uid, record.name, 0, 0, phase, node_name=node)
