"""Three who create pods: a bare client, the operator, and Kubernetes' controller of Jobs."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from ddpjob_core.api.resources import JOBS, PODS
from ddpjob_core.children.pod import PodBuilder
from ddpjob_core.observations.observe import job_record
from tests.scale.bench.scene import Scene

IN_FLIGHT: Final = 50
BATCH: Final = "/apis/batch/v1/namespaces/{}/jobs"


@asynccontextmanager
async def bare_session(scene: Scene) -> AsyncIterator[aiohttp.ClientSession]:
    """HTTP and nothing else."""
    context = ssl.create_default_context(cafile=str(scene.plane.admin.ca))
    headers = {"Authorization": f"Bearer {scene.plane.admin.token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers, base_url=scene.plane.url) as session:
        yield session


async def post_all(session: aiohttp.ClientSession, path: str, bodies: Sequence[bytes]) -> None:
    """Create objects, so many at a time."""
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            async with session.post(path, data=body) as answer:
                await answer.read()
                answer.raise_for_status()

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


async def pods_of(scene: Scene, nodes: int, namespace: str) -> AsyncIterator[dict[str, Any]]:
    """The pods that the operator would create for a job of so many nodes, in a namespace that it does not serve."""
    manifest = scene.manifest(scene.name("model"), nodes)
    manifest["metadata"]["namespace"] = namespace
    job = job_record(await scene.admin.kube.create(JOBS, manifest))
    assert job is not None
    assert job.spec is not None
    builder = PodBuilder(job, job.spec, 0, ())
    for ordinal in range(nodes):
        yield builder.build(ordinal)


async def post_pods(scene: Scene, nodes: int) -> None:
    """The bare client creates what a job is made of."""
    bodies = [json.dumps(pod).encode() async for pod in pods_of(scene, nodes, scene.bare)]
    async with bare_session(scene) as session:
        await post_all(session, PODS.path(scene.bare), bodies)


async def indexed_job(scene: Scene, nodes: int) -> dict[str, Any]:
    """Kubernetes' own job of so many of the same pods at a time."""
    pod = await anext(pods_of(scene, nodes, scene.jobs))
    # It gives each pod a name and a host name of its own.
    spec = {key: value for key, value in pod["spec"].items() if key not in ("hostname", "subdomain")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": scene.name("indexed"), "namespace": scene.jobs},
        "spec": {
            "completions": nodes,
            "parallelism": nodes,
            "completionMode": "Indexed",
            "template": {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": spec},
        },
    }
