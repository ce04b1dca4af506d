"""The operator as a process against a real API server, with its real permissions."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.api.resources import CONFIG_MAPS, EVENTS, JOBS, PODS, Resource
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import OperatorProcess, Stage, all_run, phase_is, pods_created, set_stage, until

pytestmark = pytest.mark.timeout(240)

QUOTAS = Resource("/api/v1", "resourcequotas")


async def test_a_job_that_succeeds_costs_its_objects_and_two_status_writes_and_three_events_at_most(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        # A job that is there before it costs one write more: its status, before anything is done.
        await until("it leads", lambda: leads(stage))
        await stage.create("digits")
        await until("all pods run", lambda: all_run(stage, "digits"))
        await until("the status says so", lambda: pods_created(stage, "digits"))
        for ordinal in range(4):
            stage.kubelet.exits[f"digits-a0-{ordinal}"] = 0
        await until("the job succeeds", lambda: phase_is(stage, "digits", "Succeeded"))
        made = [str(write) for write in stage.proxy.writes if not write.what.startswith("events/")]
        (launcher,) = (each["metadata"]["name"] for each in await stage.admin.all(CONFIG_MAPS, stage.namespace))
        assert set(made[:2]) == {"POST services/digits", f"POST configmaps/{launcher}"}
        assert sorted(made[2:6]) == [f"POST pods/digits-a0-{ordinal}" for ordinal in range(4)]
        # How many fall between the first and the last depends on how fast the pods were: at most one in 5 s.
        statuses = made[6:]
        assert set(statuses) == {"PUT ddpjobs/digits/status"}
        assert 2 <= len(statuses) <= 4

        async def told() -> bool:
            return sorted(await stage.events("digits")) == ["PodsCreated", "Succeeded"]

        # An event follows the status that it tells of.
        await until("both events are there", told)
        await until("every answer has arrived", lambda: all(write.done for write in stage.proxy.writes))
        assert (await stage.status("digits"))["nodes"]["succeeded"] == 4


async def test_a_restarted_operator_writes_nothing_to_jobs_that_have_not_changed(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        for name in ("one", "two", "three"):
            await stage.create(name, nodes=2)
        for name in ("one", "two", "three"):
            await until(f"{name} runs", partial(phase_is, stage, name, "Running"))
        assert await stage.operator.stop() == 0
        assert "Traceback" not in stage.operator.log()
        before = len(stage.proxy.writes)
        await stage.operator.start()
        await until("it is ready", lambda: is_ready(stage))
        # A job that comes after them is worked on after them.
        await stage.create("last", nodes=1)
        await until("the last job runs", lambda: phase_is(stage, "last", "Running"))
        assert [str(write) for write in stage.proxy.writes[before:] if "last" not in write.what] == []


async def test_a_watch_that_is_not_answered_makes_the_operator_unready_but_it_stays_alive(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path, "--watch-seconds=1") as stage:
        await stage.operator.start()
        await until("it is ready", lambda: is_ready(stage))
        assert await stage.operator.fetch("/healthz") == (200, "ok\n")
        for resource in ("pods", "services", "ddpjobs"):
            stage.proxy.block(resource)
            missed = partial(complains, stage, f"the watch of {resource} has been silent", "/readyz")
            await until(f"the watch of {resource} is missed", missed)
            assert await metric(stage, f'watch_age_seconds{{resource="{resource}"}}') > 1
            assert await is_healthy(stage)
            stage.proxy.blocked.clear()
            await until("it is ready again", lambda: is_ready(stage))
        for resource in ("pods", "services"):
            assert await metric(stage, f'watch_reconnects_total{{reason="failed",resource="{resource}"}}') > 0
        for resource in ("pods", "ddpjobs"):
            stage.proxy.mute(resource)
        await stage.create("digits", nodes=1)
        await until("silent watches are renewed", lambda: phase_is(stage, "digits", "Running"))


async def test_a_job_whose_work_does_not_end_makes_the_operator_unhealthy(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path, "--stuck-after=1") as stage:
        await stage.operator.start()
        await until("it is ready", lambda: is_ready(stage))
        stage.proxy.open.clear()
        await stage.create("digits", nodes=1)
        await until("the job is named", lambda: complains(stage, f"job {stage.namespace}/digits"))
        assert await metric(stage, "reconcile_longest_seconds") > 1
        stage.proxy.open.set()
        await until("it is healthy again", lambda: is_healthy(stage))
        await until("the job runs", lambda: phase_is(stage, "digits", "Running"))
        assert len(await stage.pods("digits")) == 1


async def test_a_job_deleted_while_the_watch_was_broken_is_forgotten(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("kept", nodes=1, suspend=True)
        await stage.create("gone", nodes=1, suspend=True)
        await until("both are counted", lambda: counts(stage, "Suspended", 2))
        stage.proxy.block("ddpjobs")
        await stage.delete("gone")
        stage.proxy.gone["ddpjobs"] = "event"
        stage.proxy.blocked.clear()
        await until("one is counted", lambda: counts(stage, "Suspended", 1))


async def test_what_only_the_server_can_refuse_becomes_the_jobs_failure_with_its_path(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("strict", nodes=6, template={"spec": {"nodeSelektor": {"a": "b"}}})
        await stage.create("invalid", nodes=6, template={"spec": {"tolerations": [{"operator": "Perhaps"}]}})
        for name, path in (("strict", "spec.nodeSelektor"), ("invalid", "spec.tolerations[0]")):
            await until(f"{name} fails", partial(phase_is, stage, name, "Failed"))
            [failed] = [item for item in (await stage.status(name))["conditions"] if item["type"] == "Failed"]
            assert failed["reason"] == "InvalidSpec"
            assert path in failed["message"]
            assert await stage.pods(name) == []
        refused = [str(write) for write in stage.proxy.writes if not write.done]
        # The first few of a job are posted together, and none after the first answer.
        assert sorted(refused) == [f"POST pods/{name}-a0-{n}" for name in ("invalid", "strict") for n in range(4)]
        await stage.set_spec("strict", template={})
        await until("it is mended by an edit", partial(phase_is, stage, "strict", "Running"))
        status = await stage.status("strict")
        assert (status["attempt"], status["restarts"]["counted"], "completionTime" in status) == (1, 0, False)


async def test_a_job_that_is_deleted_and_created_again_at_once_gets_pods_of_its_own(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        old = await stage.create("digits", nodes=2)
        await until("it runs", lambda: all_run(stage, "digits", 2))
        await stage.admin.kube.delete(JOBS, stage.namespace, "digits", uid=old["metadata"]["uid"])
        new = await stage.create("digits", nodes=2)
        await until("the new one runs", lambda: phase_is(stage, "digits", "Running"))
        owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in await stage.pods("digits")}
        assert owners == {new["metadata"]["uid"]}
        assert (await stage.status("digits"))["restarts"]["counted"] == 0


async def test_a_pod_that_loses_its_label_is_a_failed_one_and_does_not_train_on(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        await stage.admin.change(PODS, stage.namespace, "digits-a0-1", lambda raw: raw["metadata"]["labels"].clear())
        await until("it is restarted", lambda: attempt_runs(stage, "digits", 1))
        names = [pod["metadata"]["name"] for pod in await stage.admin.all(PODS, stage.namespace)]
        await until("the stray is gone", lambda: is_without(stage, "digits-a0-1"))
        assert "digits-a1-0" in names
        assert (await stage.status("digits"))["failure"]["reason"] == "PodMissing"


async def test_a_pod_that_is_evicted_without_any_grace_while_it_trains_is_not_counted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "digits-a0-1", "namespace": stage.namespace},
            "deleteOptions": {"gracePeriodSeconds": 0},
        }
        await stage.admin.ask("POST", PODS.path(stage.namespace, "digits-a0-1", "eviction"), eviction)
        await until("it is restarted", lambda: attempt_runs(stage, "digits", 1))
        status = await stage.status("digits")
        assert (status["restarts"]["counted"], status["restarts"]["ignored"]) == (0, 1)
        assert (status["failure"]["class"], status["failure"]["reason"]) == ("Disruption", "EvictionByEvictionAPI")


async def test_a_status_that_was_erased_is_rebuilt_from_the_pods(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=2)
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        stage.kubelet.exits["digits-a0-0"] = 1
        await until("it is restarted", lambda: attempt_runs(stage, "digits", 1))
        pods = [pod["metadata"]["uid"] for pod in await stage.pods("digits")]
        job = await stage.job("digits")
        del job["status"]
        await stage.admin.kube.replace_status(JOBS, job)
        await until("the status is back", lambda: attempt_runs(stage, "digits", 1))
        assert [pod["metadata"]["uid"] for pod in await stage.pods("digits")] == pods


async def test_a_used_up_quota_is_reported_and_waited_for(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": stage.namespace},
            "spec": {"hard": {"pods": "1"}},
        }
        await stage.admin.kube.create(QUOTAS, quota)
        await until("the quota counts", lambda: quota_counts(stage))
        await stage.operator.start()
        await stage.create("digits", nodes=3)
        await until("it is reported", lambda: scheduled_reason(stage, "digits", "Forbidden"))
        await stage.admin.change(QUOTAS, stage.namespace, "few", lambda raw: raw["spec"]["hard"].update(pods="9"))
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        # The quota was asked at most once in ten seconds.
        assert sum(not write.done for write in stage.proxy.writes) <= 4


async def test_progress_is_shown_while_it_trains_and_stays_when_the_pods_are_gone(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def progress(_: web.Request) -> web.Response:
        slowest = {"rank": 0, "factor": 2.123, "what": "Data"}
        steps = {"epoch": 2, "totalEpochs": 5, "step": 20, "totalSteps": 50, "loss": 0.25}
        return web.json_response({**steps, "slowest": slowest})

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    async with set_stage(control_plane, tmp_path, "--poll-interval=0.2") as stage, TestServer(app) as rank0:
        assert rank0.port is not None
        await stage.operator.start()
        await stage.create("digits", nodes=1, metrics={"port": rank0.port}, cleanPodPolicy="All")
        await until("the step is shown", lambda: shows_step(stage, "digits", "20/50"))
        status = await stage.status("digits")
        assert status["progress"]["percent"] == 40
        (pod,) = await stage.pods("digits")
        place = {"pod": "digits-a0-0", "nodeName": pod["spec"]["nodeName"], "attempt": 0, "ordinal": 0}
        named = {**place, "rank": 0, "factor": 2.1, "what": "Data"}
        assert {name: each for name, each in status["slowest"].items() if name != "time"} == named
        assert await stage.operator.metric("job_slowest_rank_factor", rank="0", what="Data") == 2.1
        stage.kubelet.exits["digits-a0-0"] = 0
        await until("it is over", lambda: phase_is(stage, "digits", "Succeeded"))
        assert "slowest" not in await stage.status("digits")
        await until("its pods are gone", lambda: is_without(stage, "digits-a0-0"))
        assert await shows_step(stage, "digits", "20/50")


async def test_its_own_credentials_and_permissions_are_enough(control_plane: ControlPlane, tmp_path: Path) -> None:
    begun = control_plane.audit_size
    async with set_stage(control_plane, tmp_path) as stage:
        direct = OperatorProcess(control_plane.operator_kubeconfig, tmp_path / "log", f"--namespace={stage.namespace}")
        await direct.start()
        try:
            await stage.create("digits", nodes=2, ttlSecondsAfterFinished=0)
            await until("it runs", lambda: all_run(stage, "digits", 2))
            stage.kubelet.exits.update({"digits-a0-0": 0, "digits-a0-1": 0})
            await until("it is gone", lambda: is_gone(stage, "digits"))
        finally:
            assert await direct.stop() == 0
    entries = control_plane.audit(stage.namespace, after=begun)
    assert {entry["responseStatus"]["code"] for entry in entries} <= {200, 201, 409}
    used = {(entry["verb"], entry["objectRef"]["resource"]) for entry in entries if "objectRef" in entry}
    assert {("list", "ddpjobs"), ("watch", "ddpjobs"), ("delete", "ddpjobs"), ("create", "pods")} <= used
    assert not used & {("patch", "ddpjobs"), ("get", "ddpjobs")}
    elsewhere = {each["objectRef"]["resource"] for each in control_plane.audit("", after=begun) if "objectRef" in each}
    assert "namespaces" not in elsewhere


async def is_gone(stage: Stage, name: str) -> bool:
    return not await stage.exists(name)


async def leads(stage: Stage) -> bool:
    return await stage.operator.metric("leading") == 1


async def is_ready(stage: Stage) -> bool:
    return (await stage.operator.fetch("/readyz"))[0] == 200


async def is_healthy(stage: Stage) -> bool:
    return (await stage.operator.fetch("/healthz"))[0] == 200


async def complains(stage: Stage, text: str, path: str = "/healthz") -> bool:
    code, said = await stage.operator.fetch(path)
    return code == 503 and text in said


async def counts(stage: Stage, phase: str, number: int) -> bool:
    _, text = await stage.operator.fetch("/metrics")
    return f'ddpjob_operator_jobs{{phase="{phase}"}} {number}.0' in text


async def metric(stage: Stage, series: str) -> float:
    """The value of one of the operator's own metrics."""
    _, text = await stage.operator.fetch("/metrics")
    (line,) = (line for line in text.splitlines() if line.startswith(f"ddpjob_operator_{series} "))
    return float(line.rpartition(" ")[2])


async def attempt_runs(stage: Stage, name: str, attempt: int) -> bool:
    status = await stage.status(name)
    return status.get("attempt") == attempt and status.get("phase") == "Running"


async def is_without(stage: Stage, pod: str) -> bool:
    return pod not in [raw["metadata"]["name"] for raw in await stage.admin.all(PODS, stage.namespace)]


async def quota_counts(stage: Stage) -> bool:
    return bool((await stage.admin.kube.get(QUOTAS, stage.namespace, "few")).get("status", {}).get("hard"))


async def scheduled_reason(stage: Stage, name: str, reason: str) -> bool:
    conditions = (await stage.status(name)).get("conditions", [])
    return any(item["type"] == "PodsScheduled" and item["reason"] == reason for item in conditions)


async def shows_step(stage: Stage, name: str, step: str) -> bool:
    summary = (await stage.status(name)).get("summary", {})
    return str(summary.get("step")) == step


async def test_who_changed_a_spec_and_what_is_said_in_an_event(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=1)
        await until("it runs", lambda: phase_is(stage, "digits", "Running"))
        path = JOBS.path(stage.namespace, "digits")
        # The API server keeps whole seconds: of two that write in the same one, it does not show which was later.
        await asyncio.sleep(1)
        await stage.admin.ask("PATCH", f"{path}?fieldManager=kubectl-patch", {"spec": {"suspend": True}})
        await until("it is suspended", lambda: phase_is(stage, "digits", "Suspended"))
        await asyncio.sleep(1)
        change = {"spec": {"nodes": 2, "suspend": False}}
        await stage.admin.ask("PATCH", f"{path}?fieldManager=argocd-controller", change)
        await until("it runs again", lambda: all_run(stage, "digits", 2))

        async def said() -> list[str]:
            events = await stage.admin.all(EVENTS, stage.namespace)
            return [each["message"] for each in events if each["reason"] == "Edited"]

        wanted = [
            "kubectl-patch changed spec.suspend (generation 2)",
            "argocd-controller changed spec.nodes, spec.suspend (generation 3)",
        ]

        async def all_said() -> bool:
            return sorted(await said()) == sorted(wanted)

        await until("both changes are said", all_said)
