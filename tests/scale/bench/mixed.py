"""Thousands of finished jobs next to a thousand that run and show progress, and an operator that is started again."""

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from ddpjob_core.api.resources import JOBS
from tests.apiserver.stage import until
from tests.scale.bench.audit import requests
from tests.scale.bench.clients import bare_session, post_all
from tests.scale.bench.large import LONGEST, peak_mib
from tests.scale.bench.scene import Scene
from tests.scale.stored import finished_jobs, store
from tests.scale.test_progress import Clock, endpoints

_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Mixed:
    """What the operator does for half a minute, and what a started one does until it is ready."""

    finished: int
    running: int
    progress_writes: float
    """Per second."""
    other_writes: int
    """Of those half a minute long, but the Lease's."""
    cpu_percent: float
    """Of a core."""
    memory: float
    """MiB."""
    ready_seconds: float
    """From the start of an operator until it was ready."""
    touched: int
    """Finished jobs that it has written to."""
    peak: float
    """The most memory of the started one, MiB."""

    def line(self) -> str:
        """For a person."""
        began = f"{self.finished} finished and {self.running} running jobs"
        writes = f"{self.progress_writes:.1f} writes of status/s, {self.other_writes} others"
        again = f"ready after {self.ready_seconds:.1f} s, {self.touched} finished jobs written to"
        return (
            f"{began}: {writes}, {self.cpu_percent:.0f} % of a core, {self.memory:.0f} MiB; "
            f"started again: {again}, at most {self.peak:.0f} MiB"
        )


async def mixed(scene: Scene, finished: int, running: int) -> Mixed:
    """So many finished jobs, and so many of one node that run and show progress."""
    store(scene.plane, finished_jobs(scene.served, finished))
    clock = Clock()
    async with endpoints(clock) as port:
        bodies = []
        for _ in range(running):
            manifest = scene.manifest(scene.name("mixed"), 1, metrics={"port": port})
            bodies.append(json.dumps(manifest).encode())
        async with bare_session(scene) as session:
            await post_all(session, JOBS.path(scene.served), bodies)

        async def all_show() -> bool:
            await asyncio.sleep(2)
            found = await scene.admin.all(JOBS, scene.served)
            shown = [each for each in found if each["metadata"]["name"].startswith("mixed")]
            return sum(bool(each.get("status", {}).get("progress", {}).get("step")) for each in shown) == running

        await until("all jobs show progress", all_show, LONGEST)
        since, before = scene.plane.audit_size, scene.processor_seconds()["operator"]
        await asyncio.sleep(_SECONDS)
        used, memory = scene.processor_seconds()["operator"] - before, scene.memory
        sent = requests(scene.plane, {scene.served}, "ddpjob-operator", since)
        writes = {what: count for what, count in sent.items() if what.split()[0] not in ("get", "list", "watch")}
        progress = writes.pop("update ddpjobs/status", 0)

        versions = await _versions(scene)
        os.kill(scene.operator.pid, signal.SIGKILL)
        await scene.operator.gone()
        begun = time.monotonic()
        await scene.operator.start()

        async def is_ready() -> bool:
            return (await scene.operator.fetch("/readyz"))[0] == HTTPStatus.OK

        await until("the operator is ready", is_ready, LONGEST)
        ready = time.monotonic() - begun
        await asyncio.sleep(_SECONDS)
        after = await _versions(scene)
        touched = sum(after[name] != version for name, version in versions.items())
        peak = peak_mib(scene.operator.pid)
    await scene.clear()
    return Mixed(
        finished,
        running,
        progress / _SECONDS,
        sum(writes.values()),
        100 * used / _SECONDS,
        memory,
        ready,
        touched,
        peak,
    )


async def _versions(scene: Scene) -> dict[str, str]:
    """Of the finished jobs."""
    found = await scene.admin.all(JOBS, scene.served)
    metadata = (each["metadata"] for each in found if each["metadata"]["name"].startswith("job-"))
    return {each["name"]: each["resourceVersion"] for each in metadata}
