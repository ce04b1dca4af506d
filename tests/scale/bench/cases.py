"""What is measured, a function a case."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.stage import until
from tests.scale.bench.audit import Creation, creations, requests
from tests.scale.bench.clients import BATCH, bare_session, indexed_job, post_all, post_pods
from tests.scale.bench.fairness import Fairness
from tests.scale.bench.large import Thousands
from tests.scale.bench.mixed import Mixed
from tests.scale.bench.scene import Scene, wait

LONGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Of objects created: how many per second, until the first pod, and what the programs used meanwhile."""

    who: str
    per_second: float
    first_ms: float
    """From the answer to the creation of a job to the request for its first pod, the median of all jobs; NaN for many
    Indexed Jobs: the audit log does not have the names of their pods, which the API server makes up."""
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
            body = json.dumps(await indexed_job(scene, nodes)).encode()
            async with bare_session(scene) as session:
                await post_all(session, BATCH.format(namespace), [body])
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
            model = await indexed_job(scene, nodes)
            names = [{**model["metadata"], "name": scene.name("indexed")} for _ in range(jobs)]
            manifests = [{**model, "metadata": metadata} for metadata in names]
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
            # <job>-a<attempt>-<ordinal>
            first.setdefault(pod.name.rsplit("-", 2)[0], pod.received)
        waited = [first[name] - owner.answered for name, owner in owners.items() if name in first]
        seconds = max(pod.answered for pod in pods) - min(owner.received for owner in owners.values())
        found.append(Rate(who, jobs / seconds, 1000 * median(waited) if waited else float("nan"), *used))
        await scene.clear()
    return found


@dataclass(frozen=True, slots=True)
class Restarted:
    """Seconds from a SIGKILL of the operator amid the pods of a job to all of them, and the longest without one."""

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

    # The log has pods as failed whose creation nobody was left to hear of: they are looked at, but seldom, since the
    # API server then writes all of them while it is to be measured how fast it creates them.
    while len(await scene.admin.all(PODS, scene.served)) < nodes:
        assert time.time() < moment + LONGEST, f"not all of {nodes} pods within {LONGEST:g} s"
        await asyncio.sleep(2)
    pods = creations(scene.plane, "pods", scene.served, since)
    await scene.rest()
    exact = await scene.admin.all(PODS, scene.served)
    assert len(exact) == nodes, f"{len(exact)} pods for {nodes} nodes"
    before = [pod for pod in pods if pod.received < moment]
    after = [pod for pod in pods if pod.received >= moment]
    await scene.clear()
    # Requests that were under way may still have been received.
    gap = max(later - earlier for earlier, later in pairwise([moment, *(pod.received for pod in after)]))
    return Restarted(len(before), after[-1].answered - moment, gap)


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


@dataclass(frozen=True, slots=True)
class Quiet:
    """What the operator does in a minute in which nothing happens to its running jobs, which serve no progress."""

    jobs: int
    requests: Mapping[str, int]
    """By verb and resource, without the renewals of its Lease."""
    cpu_percent: float
    """Of a core."""
    memory: float
    """MiB."""

    @property
    def writes(self) -> int:
        """Requests that change something."""
        return sum(count for what, count in self.requests.items() if what.split()[0] not in ("get", "list", "watch"))

    def line(self) -> str:
        """For a person."""
        sent = ", ".join(f"{count} {what}" for what, count in sorted(self.requests.items()))
        return f"{self.jobs} running jobs: {self.cpu_percent:.2f} % of a core, {self.memory:.0f} MiB, requests: {sent}"


async def quiet(scene: Scene, jobs: int) -> Quiet:
    """Many jobs of one node run, and nothing happens."""
    bodies = [json.dumps(scene.manifest(scene.name("quiet"), 1)).encode() for _ in range(jobs)]
    async with bare_session(scene) as session:
        await post_all(session, JOBS.path(scene.served), bodies)

    async def all_run() -> bool:
        found = await scene.admin.all(JOBS, scene.served)
        return sum(job.get("status", {}).get("phase") == "Running" for job in found) == jobs

    await until("all jobs run", all_run, LONGEST)
    # Their endpoints have never answered: after five minutes they are asked once a minute.
    await asyncio.sleep(330)
    since, before = scene.plane.audit_size, scene.processor_seconds()["operator"]
    await asyncio.sleep(60)
    used = scene.processor_seconds()["operator"] - before
    sent = requests(scene.plane, {scene.served, ""}, "ddpjob-operator", since)
    found = Quiet(jobs, sent, 100 * used / 60, scene.memory)
    await scene.clear()
    return found


Case: TypeAlias = Rate | Restarted | Replaced | Quiet | Thousands | Mixed | Fairness
"""What one run of a case shows."""


def _used(before: dict[str, float], after: dict[str, float]) -> tuple[float, float, float]:
    operator, controller, server = (
        after[name] - before[name] for name in ("operator", "kube-controller-manager", "kube-apiserver")
    )
    return operator, controller, server


def as_json(results: Mapping[str, Sequence[Case]]) -> str:
    """All of them."""
    return json.dumps(results, default=asdict, indent=2)
