"""What good jobs notice of one that crashes again and again, one of 10,000 nodes and one that cannot be understood.

What these cost the API server itself does not count. So the run to compare with has a bare client that posts the same
pods at the same time in their place.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from ddpjob_core.api.errors import ApiError
from ddpjob_core.api.resources import PODS
from tests.apiserver.stage import until
from tests.scale.bench.audit import creations
from tests.scale.bench.clients import bare_session, pods_of, post_all
from tests.scale.bench.scene import Scene

_NODES: Final = 4
_EVERY: Final = 0.5
"""Seconds from one good job to the next."""
_CRASHING: Final = 8
_CRASH_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Fairness:
    """Seconds from the answer to a good job to that to its last pod: the median and the 99th percentile."""

    good: int
    large: int
    next_to_jobs: tuple[float, float]
    next_to_client: tuple[float, float]
    alone: tuple[float, float]
    large_pods: tuple[int, int]
    """Of the large job, that came into being meanwhile: next to the operator, and next to the client."""

    @property
    def ratio(self) -> float:
        """Of the 99th percentiles next to the jobs and next to the client."""
        return self.next_to_jobs[1] / self.next_to_client[1]

    def line(self) -> str:
        """For a person."""
        said = (
            f"{name} {1000 * low:.0f} and {1000 * high:.0f} ms"
            for name, (low, high) in (
                ("alone", self.alone),
                ("next to the jobs", self.next_to_jobs),
                ("next to the client", self.next_to_client),
            )
        )
        return (
            f"p50 and p99 of {self.good} good jobs: {', '.join(said)}; ratio {self.ratio:.2f}; "
            f"pods of the large job meanwhile: {self.large_pods[0]} and {self.large_pods[1]}"
        )


async def fairness(scene: Scene, good: int, large: int) -> Fairness:
    """So many good jobs, one after another, alongside a large one of so many nodes and two bad ones."""
    alone, _ = await _phase(scene, good, _nothing)

    async def jobs() -> None:
        await scene.create(scene.name("large"), large)
        # Nothing can be done about a template that the API server refuses.
        wrong = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "many"}}}]}}
        with contextlib.suppress(ApiError):
            await scene.create(scene.name("poison"), 2, template=wrong)
        name = scene.name("crashing")
        await scene.create(name, _CRASHING, restart={"backoffSeconds": 0, "maxRestarts": 1000, "noProgressLimit": 1000})
        while True:
            await _fail(scene, name)
            await asyncio.sleep(_CRASH_EVERY)

    next_to_jobs, jobs_pods = await _phase(scene, good, jobs)

    async def client() -> None:
        bodies = [json.dumps(pod).encode() async for pod in pods_of(scene, large, scene.bare)]
        again = [json.dumps(pod).encode() async for pod in pods_of(scene, _CRASHING, scene.bare)]
        async with bare_session(scene) as session, asyncio.TaskGroup() as group:
            group.create_task(post_all(session, PODS.path(scene.bare), bodies))
            while True:
                for body in again:
                    name = json.loads(body)["metadata"]["name"]
                    await scene.admin.ask("POST", PODS.path(scene.bare), json.loads(body))
                    await scene.admin.ask("DELETE", f"{PODS.path(scene.bare, name)}?gracePeriodSeconds=0", None)
                await asyncio.sleep(_CRASH_EVERY)

    next_to_client, client_pods = await _phase(scene, good, client)
    return Fairness(good, large, next_to_jobs, next_to_client, alone, (jobs_pods, client_pods))


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _phase(
    scene: Scene, good: int, alongside: Callable[[], Coroutine[Any, Any, None]]
) -> tuple[tuple[float, float], int]:
    """Median and 99th percentile of the good jobs, and how many other pods came into being until the last of them."""
    since = scene.plane.audit_size

    other = asyncio.create_task(alongside())
    names = [scene.name("good") for _ in range(good)]
    try:
        # The load has to be there when the first of them comes.
        await asyncio.sleep(3)
        begun = time.monotonic()
        for number, name in enumerate(names):
            await asyncio.sleep(max(0.0, begun + number * _EVERY - time.monotonic()))
            assert not other.done(), "what is alongside them has ended"
            await scene.create(name, _NODES)

        def all_there() -> bool:
            pods = creations(scene.plane, "pods", scene.served, since)
            return sum(pod.name.startswith("good-") for pod in pods) >= good * _NODES

        await until("all pods of the good jobs", all_there, 300)
    finally:
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
    jobs = {each.name: each.answered for each in creations(scene.plane, "ddpjobs", scene.served, since)}
    last: dict[str, float] = {}
    others = 0
    for namespace in (scene.served, scene.bare):
        for pod in creations(scene.plane, "pods", namespace, since):
            # <job>-a<attempt>-<ordinal>
            name = pod.name.rsplit("-", 2)[0]
            if name in names:
                last[name] = pod.answered
            else:
                others += 1
    await scene.clear()
    waited = [last[name] - jobs[name] for name in names]
    return (median(waited), quantiles(waited, n=100)[98]), others


async def _fail(scene: Scene, job: str) -> None:
    """One of its pods fails, if there is one."""
    found = await scene.admin.ask("GET", f"{PODS.path(scene.served)}?labelSelector=ddpjob.dev%2Fjob%3D{job}", None)
    live = [pod for pod in found.get("items", []) if pod["status"].get("phase") == "Running"]
    if not live:
        return
    pod = live[0]
    for container in pod["status"].get("containerStatuses", []):
        container["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    pod["status"]["phase"] = "Failed"
    with contextlib.suppress(ApiError):
        await scene.admin.kube.replace_status(PODS, pod)
