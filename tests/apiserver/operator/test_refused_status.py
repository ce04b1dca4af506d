"""A job whose status a policy of the cluster refuses, before a real API server."""

import asyncio
import os
from pathlib import Path

import pytest

from ddpjob_core.api.resources import JOBS, PODS, Resource
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Json, Stage, all_run, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"
POLICIES = Resource(ADMISSION, "validatingadmissionpolicies")
BINDINGS = Resource(ADMISSION, "validatingadmissionpolicybindings")


def policy(name: str) -> Json:
    rule = {
        "apiGroups": ["ddpjob.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["ddpjobs/status"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "no status may change"}],
    }
    return {
        "apiVersion": ADMISSION.removeprefix("/apis/"),
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(name: str, namespace: str) -> Json:
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    spec = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    return {
        "apiVersion": ADMISSION.removeprefix("/apis/"),
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": spec,
    }


async def status_can_change(stage: Stage, name: str) -> bool:
    """Whether the API server would take another status of the job."""
    job = await stage.job(name)
    job["status"]["phase"] = "Stalled"
    path = f"{JOBS.path(stage.namespace, name, 'status')}?dryRun=All"
    answer = await stage.admin.ask("PUT", path, job)
    return answer["kind"] == "DDPJob" or answer["reason"] == "Conflict"


async def refused_told(stage: Stage, name: str) -> str | None:
    conditions = (await stage.status(name)).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "StatusRefused"), None)


async def test_a_job_whose_status_is_refused_is_suspended_and_resumed_all_the_same(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("the job runs", lambda: phase_is(stage, "digits", "Running"))
        name = f"refuses-{stage.namespace}"
        await stage.admin.ask("POST", POLICIES.path(None), policy(name))
        await stage.admin.ask("POST", BINDINGS.path(None), binding(name, stage.namespace))

        async def refuses() -> bool:
            return not await status_can_change(stage, "digits")

        async def stopped() -> bool:
            return await stage.pods("digits") == []

        async def told() -> bool:
            return "StatusRefused" in await stage.events("digits")

        try:
            await until("the policy is in force", refuses)
            await stage.set_spec("digits", suspend=True)
            await until("the pods have stopped", stopped)
            await until("an event tells it", told)
            assert await phase_is(stage, "digits", "Running"), "the status is as old as it was"
            await stage.set_spec("digits", suspend=False)
            await until("the next attempt runs", lambda: all_run(stage, "digits", 2))
            assert {pod["metadata"]["name"] for pod in await stage.pods("digits")} == {"digits-a1-0", "digits-a1-1"}
        finally:
            for resource in (BINDINGS, POLICIES):
                await stage.admin.ask("DELETE", resource.path(None, name), None)
        await until("the policy is no longer in force", lambda: status_can_change(stage, "digits"))
        await stage.set_spec("digits", suspend=True)
        await until("the status is written again", lambda: phase_is(stage, "digits", "Suspended"))

        async def accepted() -> bool:
            return await refused_told(stage, "digits") == "False"

        await until("the condition says that it is accepted", accepted)
        status = await stage.status("digits")
        assert (status["attempt"], status["restarts"]["counted"]) == (1, 0)


@pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="waits to see that nothing happens: make test-full")
async def test_a_definition_without_a_field_of_the_status_makes_nobody_write_it_all_the_time(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    admin = own_control_plane.admin
    definition = admin.get(DEFINITION)
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["selector"]
    admin.replace(definition)
    async with set_stage(own_control_plane, tmp_path) as stage:

        async def is_dropped() -> bool:
            await stage.set_spec("probe", suspend=True)
            job = await stage.job("probe")
            job["status"] = {"attempt": 0, "selector": "x"}
            answer = await stage.admin.ask("PUT", JOBS.path(stage.namespace, "probe", "status"), job)
            return "selector" not in answer["status"]

        await stage.create("probe", nodes=1)
        await until("the new definition is in force", is_dropped)
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("the job runs", lambda: phase_is(stage, "digits", "Running"))

        async def told() -> bool:
            return await refused_told(stage, "digits") == "True"

        await until("the condition says that a field is dropped", told)
        conditions = (await stage.status("digits"))["conditions"]
        [message] = [each["message"] for each in conditions if each["type"] == "StatusRefused"]
        assert message.startswith("the API server drops status.selector, which its CustomResourceDefinition does not")
        before = len(stage.proxy.writes)
        for look in range(8):
            # Longer than the time between two writes of a status that changes all the time.
            await asyncio.sleep(1)
            for pod in await stage.pods("digits"):
                await stage.admin.change(
                    PODS,
                    stage.namespace,
                    pod["metadata"]["name"],
                    lambda raw, look=look: raw["metadata"]["labels"].update({"look": str(look)}),  # type: ignore[misc]
                )
        writes = [str(write) for write in stage.proxy.writes[before:] if "digits/status" in str(write)]
        # What was about to be said of the pods may have come after it.
        assert len(writes) <= 1, writes
