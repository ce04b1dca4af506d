"""The HorizontalPodAutoscaler's real controller changes the size of jobs, by metrics that the test sets."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ddpjob_core.api.resources import Resource
from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.metrics_api import Metrics, served_metrics
from tests.apiserver.stage import Stage, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

AUTOSCALERS: Final = Resource("/apis/autoscaling/v2", "horizontalpodautoscalers")
ELASTIC: Final = {"minNodes": 1, "maxNodes": 4}
METRIC: Final = "work"


@dataclass(frozen=True)
class Autoscaled:
    """A control plane whose autoscalers act at once, and the metrics that they see."""

    plane: ControlPlane
    metrics: Metrics


@pytest.fixture(scope="module")
def autoscaled(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaled]:
    plane = ControlPlane.start(assets, tmp_path_factory.mktemp("autoscaled-control-plane"))
    with served_metrics(plane.admin, tmp_path_factory.mktemp("metrics")) as metrics:
        plane.start_controllers(
            ("horizontal-pod-autoscaler-controller",),
            "--horizontal-pod-autoscaler-sync-period=1s",
            # With the role that it has in a cluster.
            "--use-service-account-credentials=true",
        )
        yield Autoscaled(plane, metrics)
    plane.stop()


async def autoscale(stage: Stage, name: str, metric: Json, most: int = 4) -> None:
    """Give a job an autoscaler of its name that follows a metric up and down without waiting."""
    await stage.admin.kube.create(
        AUTOSCALERS,
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": stage.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "name": name},
                "minReplicas": 1,
                "maxReplicas": most,
                "metrics": [metric],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        },
    )


def external(metric: str) -> Json:
    """As many nodes as the metric's value."""
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "External", "external": {"metric": {"name": metric}, "target": target}}


async def said(stage: Stage, name: str, kind: str) -> str:
    """Reason and message of a condition of the job's autoscaler; "" where it has none."""
    status = (await stage.admin.kube.get(AUTOSCALERS, stage.namespace, name)).get("status", {})
    found = [each for each in status.get("conditions", []) if each["type"] == kind]
    return f"{found[0]['reason']}: {found[0]['message']}" if found else ""


async def says(stage: Stage, name: str, kind: str, text: str) -> bool:
    return text in await said(stage, name, kind)


async def trains_on(stage: Stage, name: str, nodes: int) -> bool:
    """Whether so many nodes train together, and there are no other pods."""
    status, pods = await stage.status(name), await stage.pods(name)
    return status.get("membership", {}).get("nodes") == status.get("replicas") == len(pods) == nodes


async def test_an_autoscaler_changes_the_size_of_a_running_job_within_its_limits(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    async with set_stage(autoscaled.plane, tmp_path) as stage:
        autoscaled.metrics.external[stage.namespace] = 4
        await stage.create("digits", nodes=2, elastic=ELASTIC)
        await autoscale(stage, "digits", external(stage.namespace), most=3)
        # The operator has not seen the job yet.
        await until("it waits", partial(says, stage, "digits", "ScalingActive", "InvalidSelector"))
        assert (await stage.job("digits"))["spec"]["nodes"] == 2
        await stage.operator.start()
        await until("the job grows", partial(trains_on, stage, "digits", 3))
        await until("it says why no more", partial(says, stage, "digits", "ScalingLimited", "TooManyReplicas"))
        autoscaled.metrics.external[stage.namespace] = 1
        await until("the job shrinks", partial(trains_on, stage, "digits", 1))
        assert await phase_is(stage, "digits", "Running")
        assert (await stage.status("digits"))["attempt"] == 0


async def test_an_autoscaler_says_why_a_job_cannot_have_the_size_that_it_asks_for(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    async with set_stage(autoscaled.plane, tmp_path) as stage:
        autoscaled.metrics.external[stage.namespace] = 6
        await stage.operator.start()
        for name, elastic in (("small", {"elastic": ELASTIC}), ("fixed", {})):
            await stage.create(name, nodes=2, **elastic)
            await autoscale(stage, name, external(stage.namespace), most=8)
        for name in ("small", "fixed"):
            await until(f"{name} runs", partial(phase_is, stage, name, "Running"))
        for name, why in (
            ("small", "spec.nodes must be from spec.elastic.minNodes to spec.elastic.maxNodes"),
            ("small", "minReplicas and maxReplicas of an autoscaler must be within these limits"),
            ("fixed", "spec.nodes can change only while the job is suspended"),
            ("fixed", "with spec.elastic the number of nodes can change at any time"),
        ):
            await until(f"the autoscaler of {name} says why", partial(says, stage, name, "AbleToScale", why))
            assert (await stage.job(name))["spec"]["nodes"] == 2


async def test_an_autoscaler_neither_starts_a_finished_or_suspended_job_nor_changes_it_again_and_again(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    async with set_stage(autoscaled.plane, tmp_path) as stage:
        await stage.operator.start()
        for name in ("done", "paused"):
            await stage.create(name, nodes=2, elastic=ELASTIC)
        for name in ("done", "paused"):
            await until(f"{name} runs", partial(phase_is, stage, name, "Running"))
        await stage.set_spec("paused", suspend=True)
        stage.kubelet.exits.update({"done-a0-0": 0, "done-a0-1": 0})
        ended = (("done", "Succeeded"), ("paused", "Suspended"))
        for name, phase in ended:
            await until(f"{name} is over", partial(phase_is, stage, name, phase))
        before = {name: await stage.job(name) for name, _ in ended}
        pods = {name: await stage.pods(name) for name, _ in ended}
        for name, _ in ended:
            autoscaled.metrics.of_jobs[(name, METRIC)] = 4
            await autoscale(stage, name, of_job(name))
        for nodes in (4, 1):
            for name, _ in ended:
                autoscaled.metrics.of_jobs[(name, METRIC)] = nodes
                await until(f"{name} is to have {nodes} nodes", partial(asks_for, stage, name, nodes))
        for name, phase in ended:
            await until("it asks for no more", partial(says, stage, name, "AbleToScale", "matches current size"))
            await until("the operator has seen it", partial(is_seen, stage, name))
            job = await stage.job(name)
            # One change for each of the two values.
            assert job["metadata"]["generation"] == before[name]["metadata"]["generation"] + 2
            assert (job["status"]["phase"], job["status"]["attempt"], job["status"]["replicas"]) == (phase, 0, 0)
            assert names(await stage.pods(name)) == names(pods[name])


async def test_an_autoscaler_that_looks_at_pods_looks_at_those_of_the_current_attempt_alone(
    autoscaled: Autoscaled, tmp_path: Path
) -> None:
    async with set_stage(autoscaled.plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("digits", nodes=3, elastic=ELASTIC)
        await until("all pods run", partial(trains_on, stage, "digits", 3))
        # Node 0 has succeeded and is kept for its log: an autoscaler takes a pod without metrics for one that is busy.
        stage.kubelet.exits.update({"digits-a0-0": 0, "digits-a0-1": 1})
        again = {f"digits-a1-{ordinal}" for ordinal in range(3)}
        await until("the next attempt runs", partial(runs, stage, "digits", again))
        assert "digits-a0-0" in names(await stage.pods("digits"))
        autoscaled.metrics.of_pods[METRIC] = dict.fromkeys(again, 50)
        target = {"type": "AverageValue", "averageValue": "100"}
        await autoscale(stage, "digits", {"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": target}})
        await until("the job shrinks", partial(asks_for, stage, "digits", 2))


def of_job(name: str) -> Json:
    """As many nodes as the value of the job's own metric."""
    target = {"type": "AverageValue", "averageValue": "1"}
    job = {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "name": name}
    return {"type": "Object", "object": {"describedObject": job, "metric": {"name": METRIC}, "target": target}}


def names(pods: list[Json]) -> set[str]:
    return {str(pod["metadata"]["name"]) for pod in pods}


async def asks_for(stage: Stage, name: str, nodes: int) -> bool:
    return bool((await stage.job(name))["spec"]["nodes"] == nodes)


async def is_seen(stage: Stage, name: str) -> bool:
    job = await stage.job(name)
    return bool(job["status"]["observedGeneration"] == job["metadata"]["generation"])


async def runs(stage: Stage, name: str, pods: set[str]) -> bool:
    """Whether the job runs, and these pods of it."""
    running = [pod for pod in await stage.pods(name) if pod["status"].get("phase") == "Running"]
    return await phase_is(stage, name, "Running") and pods == names(running)
