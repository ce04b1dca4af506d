"""Jobs on their nodes' network, and on clusters whose pods have IPv6 addresses."""

import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.api.resources import SERVICES
from tests.apiserver.controlplane import SERVICE_RANGE, ControlPlane
from tests.apiserver.stage import Stage, all_run, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

HOST = {"spec": {"hostNetwork": True}}
NODES = ("one", "two")


@pytest.fixture(scope="module")
def scheduled(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with two ready nodes and a real scheduler."""
    plane = ControlPlane.start(assets, tmp_path_factory.mktemp("scheduled"))
    room = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    for name in NODES:
        plane.admin.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {
                    "allocatable": room,
                    "capacity": room,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                },
            }
        )
        plane.admit_node(name)
    plane.start_scheduler()
    yield plane
    plane.stop()


async def test_two_jobs_with_the_same_ports_of_the_nodes_say_so_and_run_one_after_the_other(
    scheduled: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(scheduled, tmp_path) as stage:
        stage.kubelet.place_pods = False
        await stage.operator.start()
        await stage.create("first", nodes=2, procsPerNode=2, template=HOST)
        await until("the first runs", lambda: phase_is(stage, "first", "Running"))
        pods = await stage.pods("first")
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(NODES)
        for pod in pods:
            assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
            ports = pod["spec"]["containers"][0]["ports"]
            # The operator gives containerPort alone.
            assert (
                [port["hostPort"] for port in ports] == [port["containerPort"] for port in ports] == [29500, 9401, 9402]
            )
        await stage.create("second", nodes=1, template=HOST, rendezvous={"port": 29501})
        told = partial(condition, stage, "second", "PodsScheduled")
        await until(
            "the second tells why it waits", lambda: told_of(told, "DDPJob first also takes 9401 (spec.metrics.port)")
        )
        message = (await told())["message"]
        assert "29501" not in message.partition("choose other ports")[0]
        assert "the scheduler says: 0/2 nodes are available: 2 node(s) didn't have free ports" in message
        await stage.create("apart", nodes=2, template=HOST, rendezvous={"port": 29600}, metrics={"port": 9500})
        await until("a job with other ports runs alongside the first", lambda: phase_is(stage, "apart", "Running"))
        stage.kubelet.exits.update({"first-a0-0": 0, "first-a0-1": 0})
        await until("the second runs", lambda: phase_is(stage, "second", "Running"))


async def test_a_job_with_more_pods_than_nodes_says_that_a_node_has_a_port_once(
    scheduled: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(scheduled, tmp_path) as stage:
        stage.kubelet.place_pods = False
        await stage.operator.start()
        # Ports that no pod of the test above has.
        await stage.create("large", nodes=3, template=HOST, rendezvous={"port": 29700}, metrics={"port": 9700})
        told = partial(condition, stage, "large", "PodsScheduled")
        await until("it tells why", lambda: told_of(told, "request fewer nodes"))
        assert (await told())["message"].startswith("2/3 pods have a node; ")


@pytest.fixture(
    params=[
        SERVICE_RANGE,
        f"{SERVICE_RANGE},fd00:10:96::/112",
        pytest.param(
            "fd00:10:96::/112",
            marks=pytest.mark.skipif(
                os.environ.get("DDPJOB_FULL") != "1", reason="one family and both are above: make test-full"
            ),
        ),
    ]
)
def families(request: pytest.FixtureRequest, assets: Path, tmp_path: Path) -> Iterator[tuple[ControlPlane, list[str]]]:
    """A control plane whose services have addresses of one family or of both."""
    expected = ["IPv6" if ":" in each else "IPv4" for each in request.param.split(",")]
    if request.param == SERVICE_RANGE:
        # As that of all other tests has them.
        yield request.getfixturevalue("control_plane"), expected
        return
    plane = ControlPlane.start(assets, tmp_path / "control-plane", service_ranges=request.param)
    yield plane, expected
    plane.stop()


async def test_names_have_addresses_of_every_family_that_the_cluster_has(
    families: tuple[ControlPlane, list[str]], tmp_path: Path
) -> None:
    plane, expected = families
    async with set_stage(plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("all pods run", lambda: all_run(stage, "digits", 2))
        service = await stage.admin.kube.get(SERVICES, stage.namespace, "digits")
        assert (service["spec"]["clusterIP"], service["spec"]["ipFamilies"]) == ("None", expected)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_progress_is_read_from_a_pod_that_has_an_ipv6_address(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def progress(_: web.Request) -> web.Response:
        return web.json_response({"step": 20, "totalSteps": 50})

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    async with (
        set_stage(control_plane, tmp_path, "--poll-interval=0.2") as stage,
        TestServer(app, host="::1") as rank0,
    ):
        stage.kubelet.address = "::1"
        await stage.operator.start()
        await stage.create("digits", nodes=1, metrics={"port": rank0.port})

        async def shown() -> bool:
            return (await stage.status("digits")).get("summary", {}).get("step") == "20/50"

        await until("the step is shown", shown)


async def condition(stage: Stage, name: str, kind: str) -> dict[str, Any]:
    """A condition of a job, an empty one where there is none yet."""
    found = [each for each in (await stage.status(name)).get("conditions", []) if each["type"] == kind]
    return found[0] if found else {}


async def told_of(told: partial[Any], text: str) -> bool:
    """Whether a condition's message has this text."""
    return text in (await told()).get("message", "")
