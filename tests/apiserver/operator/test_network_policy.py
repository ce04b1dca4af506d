"""The NetworkPolicy of a job before a real API server: made before the pods, kept as it is meant, never another's."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import CONFIG_MAPS, NETWORK_POLICIES
from ddpjob_core.engine.protocols import Json
from hack.generate.permissions import rules_for_network_policies
from tests.apiserver.controlplane import NAMESPACE, SERVICE_ACCOUNT, ControlPlane
from tests.apiserver.rights import grant
from tests.apiserver.stage import Stage, all_run, phase_is, pods_created, set_stage, until

pytestmark = pytest.mark.timeout(240)

OK = 200
FLAGS = ("--network-policies", "--metrics-namespace=monitoring")


@contextlib.asynccontextmanager
async def isolating(plane: ControlPlane, folder: Path) -> AsyncIterator[Stage]:
    """A stage whose operator makes policies, and may."""
    async with set_stage(plane, folder, *FLAGS) as stage:
        account = {"role": "network-policies", "home": NAMESPACE}
        grant(plane, stage.namespace, SERVICE_ACCOUNT, *rules_for_network_policies(), **account)
        yield stage


async def policy(stage: Stage, name: str) -> Json:
    return await stage.admin.kube.get(NETWORK_POLICIES, stage.namespace, name)


async def test_a_job_costs_one_write_more_which_comes_before_its_pods_and_it_is_kept_as_it_is_meant(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with isolating(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await until("it leads", lambda: leads(stage))
        await stage.create("digits", nodes=2)
        await until("all pods run", lambda: all_run(stage, "digits", 2))
        await until("the status says so", lambda: pods_created(stage, "digits"))
        made = [str(write) for write in stage.proxy.writes if not write.what.startswith("events/")]
        (launcher,) = (each["metadata"]["name"] for each in await stage.admin.all(CONFIG_MAPS, stage.namespace))
        assert set(made[:3]) == {
            "POST services/digits",
            "POST networkpolicies/digits",
            f"POST configmaps/{launcher}",
        }
        assert sorted(made[3:5]) == ["POST pods/digits-a0-0", "POST pods/digits-a0-1"]
        assert not [write for write in made[5:] if not write.endswith("/status")]
        meant = (await policy(stage, "digits"))["spec"]
        assert reads_metrics(meant) == ["ddpjob-system", "monitoring"]
        for change in (opened, selects_nothing, unlabelled):
            await stage.admin.change(NETWORK_POLICIES, stage.namespace, "digits", change)
            await until(f"{change.__name__} is undone", lambda: says(stage, "digits", meant))
        uid = await delete(stage, "digits")
        await until("it is back", lambda: is_new(stage, "digits", uid))
        assert (await policy(stage, "digits"))["spec"] == meant
        # Other flags change the policies of jobs that run. Before an operator acts on one that it takes over, it
        # makes sure that it knows the newest status.
        assert await stage.operator.stop() == 0
        stage.operator._arguments = (*stage.operator._arguments[:-1], "--metrics-namespace=elsewhere")
        before = len(stage.proxy.writes)
        await stage.operator.start()
        await until("the new namespace may read", lambda: allows(stage, "digits", ["ddpjob-system", "elsewhere"]))
        await stage.create("last", nodes=1)
        await until("the last job runs", lambda: phase_is(stage, "last", "Running"))
        later = [str(write) for write in stage.proxy.writes[before:] if "last" not in write.what]
        assert later == ["PUT ddpjobs/digits/status", "POST networkpolicies/digits", "PUT networkpolicies/digits"]
        status = await stage.status("digits")
        assert (status["attempt"], status["restarts"]["counted"]) == (0, 0)


async def test_another_owners_policy_is_waited_for_and_left_as_it_is(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with isolating(control_plane, tmp_path) as stage:
        await stage.operator.start()
        theirs = {"podSelector": {}, "policyTypes": ["Ingress"]}
        metadata = {"name": "digits", "namespace": stage.namespace}
        manifest = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": theirs}
        await stage.admin.kube.create(NETWORK_POLICIES, manifest)
        await stage.create("digits", nodes=1)
        await until("it waits", lambda: waits(stage, "digits", "NameTaken"))
        assert await stage.pods("digits") == []
        assert (await policy(stage, "digits"))["spec"] == theirs
        await delete(stage, "digits")
        await until("it runs", lambda: all_run(stage, "digits", 1))
        assert reads_metrics((await policy(stage, "digits"))["spec"]) == ["ddpjob-system", "monitoring"]


async def test_every_launcher_and_shape_of_a_job_gets_a_policy_that_the_api_server_accepts_as_it_is(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    jobs: dict[str, dict[str, Any]] = {
        "mpi": {"launcher": "mpirun"},
        "plain": {"launcher": "python"},
        "elastic": {"elastic": {"maxNodes": 3}},
        "many": {"procsPerNode": 256},
        "ports": {"trainer": trainer(ports=[{"containerPort": 6006}, {"containerPort": 53, "protocol": "UDP"}])},
        "command": {"trainer": {"image": "i", "command": ["true"]}},
    }
    async with isolating(control_plane, tmp_path) as stage:
        await stage.operator.start()
        for name, fields in jobs.items():
            await stage.create(name, **{"nodes": 2, **fields})
        await stage.create("host", nodes=2, template={"spec": {"hostNetwork": True}}, metrics={"port": 19400})
        for name in (*jobs, "host"):
            await until(f"{name} runs", lambda name=name: all_run(stage, name, 2))
        # A policy that came back otherwise than it was sent would be sent again and again.
        written = [str(write) for write in stage.proxy.writes if "networkpolicies" in write.what]
        assert sorted(written) == sorted(f"POST networkpolicies/{name}" for name in jobs)
        await until("it is said", lambda: is_unprotected(stage, "host"))


async def test_without_the_right_to_make_policies_no_job_starts_and_it_is_said_why(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path, *FLAGS) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=1)
        await until("it is said", lambda: says_what_is_missing(stage))
        assert await stage.pods("digits") == []


async def says_what_is_missing(stage: Stage) -> bool:
    code, text = await stage.operator.fetch("/readyz")
    return code != OK and "networkpolicies have not been listed yet" in text and "cannot list" in text


def trainer(**fields: Any) -> dict[str, Any]:
    return {"image": "i", "script": "train.py", **fields}


def reads_metrics(spec: Json) -> list[str]:
    """The namespaces that a policy names."""
    selectors = (peer.get("namespaceSelector") for rule in spec["ingress"] for peer in rule.get("from", ()))
    return [each["matchLabels"]["kubernetes.io/metadata.name"] for each in selectors if each]


def opened(raw: Json) -> None:
    raw["spec"]["ingress"] = [{}]


def selects_nothing(raw: Json) -> None:
    raw["spec"]["podSelector"]["matchLabels"]["never"] = "there"


def unlabelled(raw: Json) -> None:
    raw["metadata"]["labels"] = {}
    raw["spec"]["ingress"] = [{}]


async def says(stage: Stage, name: str, spec: Json) -> bool:
    found = await policy(stage, name)
    return bool(found["spec"] == spec and found["metadata"]["labels"].get("ddpjob.dev/job") == name)


async def allows(stage: Stage, name: str, namespaces: list[str]) -> bool:
    return reads_metrics((await policy(stage, name))["spec"]) == namespaces


async def is_unprotected(stage: Stage, name: str) -> bool:
    conditions = {each["type"]: each["message"] for each in (await stage.status(name))["conditions"]}
    return "no NetworkPolicy protects them" in conditions["PodsScheduled"]


async def waits(stage: Stage, name: str, reason: str) -> bool:
    conditions = (await stage.status(name)).get("conditions", [])
    return any(each["type"] == "PodsScheduled" and each["reason"] == reason for each in conditions)


async def delete(stage: Stage, name: str) -> str:
    uid = str((await policy(stage, name))["metadata"]["uid"])
    await stage.admin.kube.delete(NETWORK_POLICIES, stage.namespace, name, uid=uid)
    return uid


async def is_new(stage: Stage, name: str, old: str) -> bool:
    try:
        return bool((await policy(stage, name))["metadata"]["uid"] != old)
    except NotFound:
        return False


async def leads(stage: Stage) -> bool:
    return await stage.operator.metric("leading") == 1
