"""Healthy jobs next to everything else: what they must not notice, and how long they wait for their first pod."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.names import pod_name
from ddpjob_core.api.resources import JOBS
from tests.apiserver.controlplane import Json
from tests.apiserver.fuzz.town import Town
from tests.apiserver.stage import until

NODES: Final = 2
EVERY: Final = 0.5
"""Seconds from the creation of one job to that of the next."""
_CREATED: Final = 201
_KINDS: Final = ("counted", "ignored", "process")


@dataclass
class Healthy:
    """How the jobs of a phase ended: their restarts, as expected and as counted, by name."""

    phase: int
    begun: int
    expected: dict[str, int] = field(default_factory=dict)
    ended: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)

    def judge(self) -> None:
        """All have succeeded, with exactly the restarts that their programs caused."""
        due = {name: ("Succeeded", {"counted": n} if n else {}) for name, n in self.expected.items()}
        assert self.ended == due


@asynccontextmanager
async def healthy_jobs(town: Town, phase: int) -> AsyncIterator[Healthy]:
    """Create jobs as long as the block runs, and wait at its end until all have ended."""
    found = Healthy(phase, town.plane.audit_size)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_create(town, found, stop, tasks))
        try:
            yield found
        finally:
            stop.set()


async def _create(town: Town, found: Healthy, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
    number = 0
    while not stop.is_set() or number == 0:
        due = time.monotonic() + EVERY
        name = f"healthy-{found.phase}-{number}"
        restarts = found.expected[name] = int(number % 3 == 0)
        spec: Json = {
            "nodes": NODES,
            "procsPerNode": 1,
            "trainer": {"image": "i", "script": "t.py"},
            "restart": {"backoffSeconds": 0},
        }
        raw: Json = {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "metadata": {"name": name}, "spec": spec}
        taken, answer = await town.write("POST", JOBS, "healthy", raw)
        assert taken, answer
        tasks.create_task(_live(town, found, name, restarts))
        number += 1
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _live(town: Town, found: Healthy, name: str, restarts: int) -> None:
    """Let a job run, fail as often as it is to, and succeed."""
    for attempt in range(restarts + 1):
        await until(f"{name} runs", partial(_runs, town, name, attempt))
        ends = attempt == restarts
        codes = {pod_name(name, attempt, ordinal, 1): int(not ends and ordinal == 1) for ordinal in range(NODES)}
        # Only one of them fails: the other is stopped by the operator.
        town.kubelet.exits.update({pod: code for pod, code in codes.items() if ends or code})
    await until(f"{name} ends", partial(_has_ended, town, found, name), 120)
    code, _ = await town.wire.send("DELETE", JOBS.path(town.namespaces["healthy"], name))
    assert code < 300, name


async def _status(town: Town, name: str) -> Json:
    try:
        return dict((await town.admin.kube.get(JOBS, town.namespaces["healthy"], name)).get("status") or {})
    except NotFound:
        return {}


async def _runs(town: Town, name: str, attempt: int) -> bool:
    status = await _status(town, name)
    return status.get("phase") == "Running" and status.get("attempt") == attempt


async def _has_ended(town: Town, found: Healthy, name: str) -> bool:
    status = await _status(town, name)
    if status.get("phase") not in ("Succeeded", "Failed"):
        return False
    found.ended[name] = (
        str(status["phase"]),
        {kind: n for kind, n in status["restarts"].items() if n and kind in _KINDS},
    )
    return True


def first_pods(town: Town, found: Healthy) -> list[float]:
    """Seconds from the API server's answer to the creation of each job to the one to the creation of its first pod."""
    jobs: dict[str, datetime] = {}
    pods: dict[str, datetime] = {}
    for entry in town.plane.audit(town.namespaces["healthy"], None, found.begun):
        if entry["verb"] != "create" or entry["responseStatus"]["code"] != _CREATED:
            continue
        what, at = entry["objectRef"], datetime.fromisoformat(entry["stageTimestamp"])
        name = str(what.get("name", ""))
        if what["resource"] == "ddpjobs":
            jobs[name] = at
        elif what["resource"] == "pods" and not what.get("subresource"):
            job = name.rpartition("-a0-")[0]
            pods[job] = min(at, pods.get(job, at))
    return [(pods[name] - at).total_seconds() for name, at in jobs.items() if name in found.expected]
