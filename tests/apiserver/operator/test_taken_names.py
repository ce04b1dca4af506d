"""Names of a job's objects that others have: they are recognised without being watched, waited for, and never used."""

import base64
from pathlib import Path

import pytest

from ddpjob_core.api.constants import LAUNCHER_VOLUME, SSH_KEY_VOLUME
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, EVENTS, PODS, SECRETS, SERVICES, Resource
from ddpjob_core.children.checkpoint import build_claim
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.ssh_key import build_ssh_key
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.observe import controller_uid, job_record
from ddpjob_core.observations.observed import JobRecord
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, all_run, phase_is, set_stage, until

QUOTAS = Resource("/api/v1", "resourcequotas")
pytestmark = pytest.mark.timeout(240)


async def test_what_has_a_name_of_the_jobs_is_recognised_named_and_never_used(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        for name in ("a", "b", "c"):
            await stage.create(name, nodes=2, suspend=True)
            await until("its name is known", lambda name=name: phase_is(stage, name, "Suspended"))
        guessed = await launcher(stage, "c")
        in_the_way = {
            "a": (SERVICES, manifest(stage, "Service", "a", spec={"ports": [{"port": 80}]})),
            "b": (PODS, manifest(stage, "Pod", "b-a0-1", spec={"containers": [{"name": "x", "image": "i"}]})),
        }
        for resource, raw in in_the_way.values():
            await stage.admin.kube.create(resource, raw)
        # As far as anyone can work it out, and the job's own by the look of it.
        await stage.admin.kube.create(CONFIG_MAPS, {**guessed, "binaryData": {"launcher.pyz": "AAAA"}})
        for name in ("a", "b", "c"):
            await stage.set_spec(name, suspend=False)
        await until("what was guessed is not used", lambda: all_run(stage, "c", 2))
        (used,) = {mounted(pod) for pod in await stage.pods("c")}
        assert used.startswith(f"{guessed['metadata']['name']}-")
        found = await stage.admin.kube.get(CONFIG_MAPS, stage.namespace, used)
        assert (found["data"], found["binaryData"]) == (guessed["data"], guessed["binaryData"])
        for name, (_, raw) in in_the_way.items():
            await until(f"{name} waits", lambda name=name: waits(stage, name))
            assert raw["metadata"]["name"] in await said(stage, name)
        assert "is not this job's: delete it or rename the job" in await said(stage, "a")
        for name in in_the_way:
            # Node 0 of the second waits for node 1; those of the first would have no service.
            assert [pod["metadata"]["name"] for pod in await stage.pods(name)] == (["b-a0-0"] if name == "b" else [])
        for resource, raw in in_the_way.values():
            await delete(stage, resource, raw["metadata"]["name"])
        for name in in_the_way:
            await until(f"{name} runs", lambda name=name: all_run(stage, name, 2))


async def test_a_key_or_launcher_that_another_user_has_put_there_is_never_used(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("m", nodes=2, launcher="mpirun", suspend=True)
        await until("its name is known", lambda: phase_is(stage, "m", "Suspended"))
        job = await record(stage, "m")
        # As far as anyone can work it out, and the job's own by the look of it.
        planted = {**build_ssh_key(job), "stringData": {"ssh-privatekey": "stranger", "ssh-publickey": "stranger"}}
        await stage.admin.kube.create(SECRETS, planted)
        await stage.set_spec("m", suspend=False)
        await until("it runs", lambda: all_run(stage, "m", 2))
        first = await mounted_once(stage, "m", SSH_KEY_VOLUME, "secret", "secretName")
        found = await stage.admin.kube.get(SECRETS, stage.namespace, first)
        assert first.startswith(f"{planted['metadata']['name']}-")
        assert controller_uid(found) == job.uid
        assert base64.b64decode(found["data"]["ssh-privatekey"]).startswith(b"-----BEGIN")
        # Once a name is known, that of the next attempt with another spec must not be.
        used = await mounted_once(stage, "m", LAUNCHER_VOLUME, "configMap", "name")
        await stage.set_spec("m", suspend=True)
        await until("it is suspended again", lambda: phase_is(stage, "m", "Suspended"))
        await stage.set_spec("m", procsPerNode=3)
        guessed = await launcher(stage, "m")
        end = used.rpartition("-")[2]
        for kind in (CONFIG_MAPS, SECRETS):
            made = guessed if kind is CONFIG_MAPS else planted
            metadata = {**made["metadata"], "name": f"{made['metadata']['name']}-{end}"}
            await stage.admin.kube.create(kind, {**made, "metadata": metadata})
        await stage.set_spec("m", suspend=False)
        await until("the next attempt runs", lambda: all_run(stage, "m", 2))
        used = await mounted_once(stage, "m", LAUNCHER_VOLUME, "configMap", "name")
        assert used.startswith(f"{guessed['metadata']['name']}-")
        assert not used.endswith(end)


async def test_a_name_that_nobody_may_know_is_not_told_while_a_quota_keeps_its_object_from_being_created(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": stage.namespace},
            "spec": {"hard": {"count/secrets": "0", "count/configmaps": "0"}},
        }
        await stage.admin.kube.create(QUOTAS, quota)
        await until("the quota counts", lambda: is_counted(stage))
        await stage.operator.start()
        await stage.create("m", nodes=2, launcher="mpirun")
        await until(
            "both are refused", lambda: says(stage, "m", "secret m-ssh", "configmap m-launcher", "exceeded quota")
        )
        told = await said(stage, "m")
        posted = " ".join(await events_of(stage, "m", "Forbidden"))
        await delete(stage, QUOTAS, "few")
        await until("it runs", lambda: all_run(stage, "m", 2))
        for volume, source, field in ((SSH_KEY_VOLUME, "secret", "secretName"), (LAUNCHER_VOLUME, "configMap", "name")):
            end = (await mounted_once(stage, "m", volume, source, field)).rpartition("-")[2]
            assert end not in told
            assert end not in posted


async def is_counted(stage: Stage) -> bool:
    found = await stage.admin.kube.get(QUOTAS, stage.namespace, "few")
    return "used" in (found.get("status") or {})


async def says(stage: Stage, name: str, *words: str) -> bool:
    told = await said(stage, name)
    return all(each in told for each in words)


async def test_a_claim_that_was_there_before_the_job_is_used_and_named_in_an_event(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        for name in ("found", "fresh"):
            await stage.create(name, nodes=1, checkpoint={"size": "1Gi"}, suspend=True)
            await until("its uid is known", lambda name=name: phase_is(stage, name, "Suspended"))
        job = await record(stage, "found")
        assert job.spec is not None
        assert job.spec.checkpoint is not None
        made = await stage.admin.kube.create(CLAIMS, build_claim(job, job.spec.checkpoint) or {})
        for name, reason in (("fresh", "PodsCreated"), ("found", "ClaimReused")):
            await stage.set_spec(name, suspend=False)
            await until(f"{name} runs", lambda name=name: all_run(stage, name, 1))
            await until(f"{name} says so", lambda name=name, reason=reason: events_of(stage, name, reason))
        (said,) = await events_of(stage, "found", "ClaimReused")
        assert f"the claim found-checkpoints (uid {made['metadata']['uid']}), which was there before this job" in said
        assert await events_of(stage, "fresh", "ClaimReused") == []


async def events_of(stage: Stage, name: str, reason: str) -> list[str]:
    found = await stage.admin.all(EVENTS, stage.namespace)
    return [each["message"] for each in found if (each["involvedObject"]["name"], each["reason"]) == (name, reason)]


async def mounted_once(stage: Stage, name: str, volume: str, source: str, field: str) -> str:
    """What all live pods of a job have as one volume."""
    pods = [pod for pod in await stage.pods(name) if pod["status"].get("phase") == "Running"]
    (found,) = {str(each[source][field]) for pod in pods for each in pod["spec"]["volumes"] if each["name"] == volume}
    return found


async def record(stage: Stage, name: str) -> JobRecord:
    found = job_record(await stage.job(name))
    assert found is not None
    return found


async def launcher(stage: Stage, name: str) -> Json:
    """The ConfigMap that the operator makes for a job, by the part of its name that anyone can work out."""
    job = await record(stage, name)
    assert job.spec is not None
    made: Json = build_launcher(job, job.spec)
    return made


def mounted(pod: Json) -> str:
    """The launcher of a pod."""
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == LAUNCHER_VOLUME]
    return str(volume["configMap"]["name"])


def manifest(stage: Stage, kind: str, name: str, **fields: object) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": stage.namespace}, **fields}


async def waits(stage: Stage, name: str) -> bool:
    conditions = (await stage.status(name)).get("conditions", [])
    return any(each["type"] == "PodsScheduled" and each["reason"] == "NameTaken" for each in conditions)


async def said(stage: Stage, name: str) -> str:
    return " ".join(each["message"] for each in (await stage.status(name)).get("conditions", []))


async def delete(stage: Stage, resource: Resource, name: str) -> None:
    uid = (await stage.admin.kube.get(resource, stage.namespace, name))["metadata"]["uid"]
    await stage.admin.kube.delete(resource, stage.namespace, name, uid=uid)
