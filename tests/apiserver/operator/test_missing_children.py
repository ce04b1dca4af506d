"""What is deleted by hand while a job needs it is created again, before a real API server."""

from pathlib import Path

import pytest

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, PODS, SERVICES, Resource
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, phase_is, pods_created, set_stage, until

pytestmark = pytest.mark.timeout(240)


async def test_what_pods_wait_for_and_what_running_pods_are_found_by_comes_back(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        stage.kubelet.run_pods = False
        await stage.operator.start()
        await stage.create("digits", nodes=2, checkpoint={"size": "1Gi", "retain": "Delete"})
        await until("its pods were created", lambda: pods_created(stage, "digits"))
        (launcher,) = (each["metadata"]["name"] for each in await stage.admin.all(CONFIG_MAPS, stage.namespace))
        # A claim that something uses stays until that is gone, as here by its finalizer.
        await keep(stage, ["example.com/kept"])
        # The next process has not created it, and would give it another name.
        await stage.operator.end()
        old = [await delete(stage, CLAIMS, "digits-checkpoints"), await delete(stage, CONFIG_MAPS, launcher)]
        await stage.operator.start()
        for pod in await stage.pods("digits"):
            await wait_for_volumes(stage, pod["metadata"]["name"])
        await until("the launcher is back", lambda: is_new(stage, CONFIG_MAPS, launcher, old[1]))
        await until("the pods make way for the claim", lambda: waits_for_claim(stage, "digits"))
        await keep(stage, [])
        await until("the claim is back", lambda: is_new(stage, CLAIMS, "digits-checkpoints", old[0]))
        stage.kubelet.run_pods = True
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        service = await delete(stage, SERVICES, "digits")
        await until("the service is back", lambda: is_new(stage, SERVICES, "digits", service))
        status = await stage.status("digits")
        assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["ignored"]) == (1, 0, 0)


async def keep(stage: Stage, finalizers: list[str]) -> None:
    """Delay the deletion of the claim, or let it go."""
    await stage.admin.change(
        CLAIMS, stage.namespace, "digits-checkpoints", lambda raw: raw["metadata"].update(finalizers=finalizers)
    )


async def wait_for_volumes(stage: Stage, pod: str) -> None:
    """Leave a pod as its kubelet does while a volume of it is missing."""
    await stage.admin.bind(stage.namespace, pod)
    raw = await stage.admin.kube.get(PODS, stage.namespace, pod)
    time = raw["metadata"]["creationTimestamp"]
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": time},
        {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": time},
    ]
    raw["status"] = {"phase": "Pending", "startTime": time, "conditions": conditions}
    await stage.admin.kube.replace_status(PODS, raw)


async def waits_for_claim(stage: Stage, name: str) -> bool:
    status = await stage.status(name)
    reasons = {each["type"]: each["reason"] for each in status["conditions"]}
    return bool(status["attempt"] == 1 and reasons["PodsScheduled"] == "BeingDeleted" and not await stage.pods(name))


async def delete(stage: Stage, resource: Resource, name: str) -> str:
    """Delete an object of the job as a user does; the uid that it had."""
    uid = str((await stage.admin.kube.get(resource, stage.namespace, name))["metadata"]["uid"])
    await stage.admin.kube.delete(resource, stage.namespace, name, uid=uid)
    return uid


async def is_new(stage: Stage, resource: Resource, name: str, old: str) -> bool:
    """Whether there is another object of this name than the old one."""
    try:
        return bool((await stage.admin.kube.get(resource, stage.namespace, name))["metadata"]["uid"] != old)
    except NotFound:
        return False
