"""An operator that is older than the installed CustomResourceDefinition, before a real API server."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddpjob_core.api.resources import JOBS
from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"


async def test_a_job_with_a_field_of_a_newer_version_is_left_alone_until_the_field_is_gone(
    breakable_control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(breakable_control_plane, tmp_path, "--watch-seconds=2") as stage:
        await stage.operator.start()
        await stage.create("running", nodes=2)
        await until("it runs", lambda: phase_is(stage, "running", "Running"))
        async with newer_definition(stage):
            await until("the new field is stored", lambda: stores(stage, "running"))
            # A watch from before the change may still drop the field.
            await until("the running job is left alone", lambda: says(stage, "running", "True"))
            await stage.create("new", nodes=1, lanes=2)
            await until("the new job is left alone", lambda: says(stage, "new", "True"))
            uids = [pod["metadata"]["uid"] for pod in await stage.pods("running")]
            stage.kubelet.exits["running-a0-1"] = 1
            await until("a pod has failed", lambda: has_failed(stage, "running-a0-1"))
            # A job that comes after it is worked on after it.
            await stage.create("last", nodes=1)
            await until("another job runs", lambda: phase_is(stage, "last", "Running"))
            status = await stage.status("running")
            assert (status["attempt"], status["phase"]) == (0, "Running")
            assert [pod["metadata"]["uid"] for pod in await stage.pods("running")] == uids
            assert not await stage.pods("new")
            for name in ("running", "new"):
                await stage.admin.change(JOBS, stage.namespace, name, lambda raw: raw["spec"].pop("lanes", None))
            await until("the new job runs", lambda: phase_is(stage, "new", "Running"))
            await until("the other one is restarted", lambda: is_restarted(stage, "running"))
            assert await says(stage, "running", "False")


@contextlib.asynccontextmanager
async def newer_definition(stage: Stage) -> AsyncIterator[None]:
    """The definition of a version whose spec has a field more."""
    await _define(stage, {"lanes": {"type": "integer"}})
    try:
        yield
    finally:
        await _define(stage, {})


async def _define(stage: Stage, more: Json) -> None:
    raw = await stage.admin.ask("GET", DEFINITION, None)
    fields = raw["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields.pop("lanes", None)
    fields.update(more)
    answer = await stage.admin.ask("PUT", DEFINITION, raw)
    assert answer["kind"] == "CustomResourceDefinition", answer


async def stores(stage: Stage, name: str) -> bool:
    """Whether the API server keeps the field: it takes a moment to follow a new definition."""
    await stage.set_spec(name, lanes=2)
    return "lanes" in (await stage.job(name))["spec"]


async def says(stage: Stage, name: str, status: str) -> bool:
    conditions = (await stage.status(name)).get("conditions", [])
    return any((each["type"], each["status"]) == ("Unreadable", status) for each in conditions)


async def is_restarted(stage: Stage, name: str) -> bool:
    status = await stage.status(name)
    return (status["attempt"], status["restarts"]["counted"], status["phase"]) == (1, 1, "Running")


async def has_failed(stage: Stage, pod: str) -> bool:
    return any(
        raw["metadata"]["name"] == pod and raw["status"].get("phase") == "Failed"
        for raw in await stage.pods(pod.partition("-")[0])
    )
