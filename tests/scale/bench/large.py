"""Cases of thousands of pods: one job of them, many jobs, and the operator killed in the midst of each."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.stage import until
from tests.scale.bench.audit import Creation, creations
from tests.scale.bench.clients import bare_session, post_all
from tests.scale.bench.scene import Scene

LONGEST: Final = 900.0
_LOOK_EVERY: Final = 2.0
"""Seconds between two looks at how many pods there are: each asks for a count alone."""


@dataclass(frozen=True, slots=True)
class Thousands:
    """What it took to create the pods of jobs, perhaps with the operator killed when half of them were there."""

    jobs: int
    pods: int
    killed: bool
    seconds: float
    """From the first request for a job to the answer to the last pod."""
    gap: float
    """The longest without a new pod, seconds; after the kill, where there was one."""
    operator_seconds: float
    """Of its processor, of the process that lived last, until it was at rest."""
    server_seconds: float
    peak: float
    """The most memory that the operator had at any moment, MiB, in the process that lived last."""

    @property
    def per_second(self) -> float:
        """Pods per second."""
        return self.pods / self.seconds

    def line(self) -> str:
        """For a person."""
        killed = f", killed in the middle: no new pod for {self.gap:.1f} s" if self.killed else ""
        return (
            f"{self.jobs} jobs with {self.pods} pods: {self.per_second:.1f}/s, all after {self.seconds:.1f} s{killed}; "
            f"operator {self.operator_seconds:.1f} s of CPU and at most {self.peak:.0f} MiB, "
            f"API server {self.server_seconds:.1f} s"
        )


async def thousands(scene: Scene, jobs: int, nodes: int, *, kill: bool) -> Thousands:
    """So many jobs at once, of so many nodes each; each pod comes into being exactly once."""
    wanted = jobs * nodes
    bodies = [json.dumps(scene.manifest(scene.name("thousands"), nodes)).encode() for _ in range(jobs)]
    since, before = scene.plane.audit_size, scene.processor_seconds()
    begun = time.time()
    async with bare_session(scene) as session:
        await post_all(session, JOBS.path(scene.served), bodies)
    moment = begun
    if kill:
        await until("half of the pods", lambda: _has(scene, wanted // 2), LONGEST)
        os.kill(scene.operator.pid, signal.SIGKILL)
        moment = time.time()
        await scene.operator.gone()
        await scene.operator.start()
        before["operator"] = 0.0
    await until(f"{wanted} pods", lambda: _has(scene, wanted), LONGEST)
    await scene.rest()
    names = sorted(pod["metadata"]["name"] for pod in await scene.admin.all(PODS, scene.served))
    assert len(names) == wanted, f"{len(names)} pods for {wanted} nodes"
    used = scene.processor_seconds()
    pods = creations(scene.plane, "pods", scene.served, since)
    found = Thousands(
        jobs,
        wanted,
        kill,
        max(pod.answered for pod in pods) - begun,
        _longest_gap(pods, moment),
        used["operator"] - before["operator"],
        used["kube-apiserver"] - before["kube-apiserver"],
        peak_mib(scene.operator.pid),
    )
    await scene.clear()
    return found


async def _has(scene: Scene, wanted: int) -> bool:
    await asyncio.sleep(_LOOK_EVERY)
    answer = await scene.admin.ask("GET", f"{PODS.path(scene.served)}?limit=1", None)
    left = answer["metadata"].get("remainingItemCount", 0)
    return len(answer["items"]) + int(left) >= wanted


def _longest_gap(pods: Sequence[Creation], moment: float) -> float:
    after = [pod.received for pod in pods if pod.received >= moment]
    return max((later - earlier for earlier, later in pairwise([moment, *after])), default=0.0)


def peak_mib(pid: int) -> float:
    """The most memory that a process has had: that is what a container's limit ends it for."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 2**10
