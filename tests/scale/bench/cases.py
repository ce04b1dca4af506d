"""What is measured, a function a case."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.stage import until
from tests.scale.bench.audit import Creation, creations
from tests.scale.bench.clients import BATCH, bare_session, indexed_job, post_all, post_pods
from tests.scale.bench.scene import Scene, wait

LONGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Of objects created: how many per second, until the first pod, and what the programs used meanwhile."""

    who: str
    per_second: float
    first_ms: float
    """From the answer to the creation of a job to the request for its first pod, the median of all jobs."""
    operator_seconds: float
    controller_seconds: float
    server_seconds: float

    def line(self) -> str:
        """For a person."""
        return (
            f"{self.who:12} {self.per_second:7.1f}/s  first pod after {self.first_ms:7.1f} ms  "
            f"CPU: operator {self.operator_seconds:5.2f}, job controller {self.controller_seconds:5.2f}, "
            f"API server {self.server_seconds:5.2f} s"
        )


async def one_job(scene: Scene, nodes: int) -> list[Rate]:
    """One job of many nodes."""
    found = []
    for who, namespace in (("bare client", scene.bare), ("ddpjob", scene.served), ("Indexed Job", scene.jobs)):
        since, before = scene.plane.audit_size, scene.processor_seconds()
        if who == "bare client":
            await post_pods(scene, nodes)
        elif who == "ddpjob":
            await scene.create(scene.name("one"), nodes)
        else:
            async with bare_session(scene) as session:
                await post_all(session, BATCH.format(namespace), [json.dumps(indexed_job(scene, nodes)).encode()])
        pods: list[Creation] = []

        def all_there(pods: list[Creation] = pods, namespace: str = namespace, since: int = since) -> bool:
            pods[:] = creations(scene.plane, "pods", namespace, since)
            return len(pods) >= nodes

        await wait(f"{nodes} pods of {who}", all_there, LONGEST)
        await scene.rest()
        used = _used(before, scene.processor_seconds())
        kind = "jobs" if who == "Indexed Job" else "ddpjobs"
        owner = creations(scene.plane, kind, namespace, since)
        seconds = max(pod.answered for pod in pods) - pods[0].received
        found.append(Rate(who, nodes / seconds, 1000 * (pods[0].received - owner[0].answered), *used))
        await scene.clear()
    return found


async def many_jobs(scene: Scene, jobs: int, nodes: int) -> list[Rate]:
    """Many small jobs at once."""
    found = []
    for who, namespace in (("ddpjob", scene.served), ("Indexed Job", scene.jobs)):
        if who == "ddpjob":
            manifests = [scene.manifest(scene.name("many"), nodes) for _ in range(jobs)]
            path, kind = JOBS.path(namespace), "ddpjobs"
        else:
            manifests = [indexed_job(scene, nodes) for _ in range(jobs)]
            path, kind = BATCH.format(namespace), "jobs"
        bodies = [json.dumps(manifest).encode() for manifest in manifests]
        since, before = scene.plane.audit_size, scene.processor_seconds()
        async with bare_session(scene) as session:
            await post_all(session, path, bodies)
        pods: list[Creation] = []

        def all_there(pods: list[Creation] = pods, namespace: str = namespace, since: int = since) -> bool:
            pods[:] = creations(scene.plane, "pods", namespace, since)
            return len(pods) >= jobs * nodes

        await wait(f"{jobs * nodes} pods of {who}", all_there, LONGEST)
        await scene.rest()
        used = _used(before, scene.processor_seconds())
        owners = {owner.name: owner for owner in creations(scene.plane, kind, namespace, since)}
        first: dict[str, float] = {}
        for pod in pods:
            # An Indexed Job's pods are <job>-<index>-<random>, ddpjob's <job>-a<attempt>-<ordinal>.
            first.setdefault(pod.name.rsplit("-", 2)[0], pod.received)
        waited = [first[name] - owner.answered for name, owner in owners.items() if name in first]
        seconds = max(pod.answered for pod in pods) - min(owner.received for owner in owners.values())
        found.append(Rate(who, jobs / seconds, 1000 * median(waited) if waited else float("nan"), *used))
        await scene.clear()
    return found


@dataclass(frozen=True, slots=True)
class Restarted:
    """Seconds from a SIGKILL of the operator in the middle of a job to all its pods, and to the next one."""

    killed_at: int
    complete: float
    gap: float

    def line(self) -> str:
        """For a person."""
        return f"killed at {self.killed_at} pods: complete after {self.complete:.2f} s, no new pod for {self.gap:.2f} s"


async def killed(scene: Scene, nodes: int, at: int) -> Restarted:
    """The operator is killed while it creates the pods of a job, and started again immediately."""
    since = scene.plane.audit_size
    await scene.create(scene.name("killed"), nodes)
    await until("some pods", lambda: len(creations(scene.plane, "pods", scene.served, since)) >= at)
    os.kill(scene.operator.pid, signal.SIGKILL)
    moment = time.time()
    await scene.operator.gone()
    await scene.operator.start()
    await wait("all pods", lambda: len(creations(scene.plane, "pods", scene.served, since)) >= nodes, LONGEST)
    pods = creations(scene.plane, "pods", scene.served, since)
    await scene.rest()
    exact = creations(scene.plane, "pods", scene.served, since)
    assert len(exact) == nodes, f"{len(exact)} pods for {nodes} nodes"
    before = [pod for pod in pods if pod.received < moment]
    after = [pod for pod in pods if pod.received >= moment]
    await scene.clear()
    return Restarted(len(before), after[-1].answered - moment, after[0].received - moment)


@dataclass(frozen=True, slots=True)
class Replaced:
    """Seconds from a pod's failure to the last pod of the next attempt, with no backoff."""

    seconds: float

    def line(self) -> str:
        """For a person."""
        return f"all pods of the next attempt after {self.seconds:.2f} s"


async def gang(scene: Scene, nodes: int = 8) -> Replaced:
    """One of the pods of a job fails."""
    name = scene.name("gang")
    await scene.create(name, nodes, restart={"backoffSeconds": 0})

    async def all_run() -> bool:
        pods = await scene.admin.all(PODS, scene.served)
        return [pod["status"].get("phase") for pod in pods] == ["Running"] * nodes

    await until("all pods run", all_run)
    await scene.rest()
    since = scene.plane.audit_size
    pod = (await scene.admin.all(PODS, scene.served))[0]
    for container in pod["status"]["containerStatuses"]:
        container["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    pod["status"]["phase"] = "Failed"
    moment = time.time()
    await scene.admin.kube.replace_status(PODS, pod)
    await wait("the next attempt", lambda: len(creations(scene.plane, "pods", scene.served, since)) >= nodes, 60)
    last = creations(scene.plane, "pods", scene.served, since)[-1].answered
    await scene.clear()
    return Replaced(last - moment)


def _used(before: dict[str, float], after: dict[str, float]) -> tuple[float, float, float]:
    operator, controller, server = (
        after[name] - before[name] for name in ("operator", "kube-controller-manager", "kube-apiserver")
    )
    return operator, controller, server


def as_json(results: dict[str, object]) -> str:
    """All of them."""
    return json.dumps(results, default=asdict, indent=2)
