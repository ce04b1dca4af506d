"""10,000 fuzzed jobs, statuses of pods, termination messages and answers on /progress, next to healthy jobs.

How long these wait for their first pod is compared, in the same run, with how long they do while a bare client sends as
many plain requests to a namespace that the operator does not serve: what the API server takes for its own part does not
count. What fails names the seeds that repeat it alone: DDPJOB_FUZZ=pods:12,13.
"""

import asyncio
import json
import os
import statistics
import time
from pathlib import Path
from typing import Final

import pytest

from ddpjob_core.api.resources import PODS
from tests.apiserver.controlplane import ControlPlane, Json
from tests.apiserver.fuzz.deeds import fuzz, seeds_of
from tests.apiserver.fuzz.healthy import first_pods, healthy_jobs
from tests.apiserver.fuzz.mutants import text_of
from tests.apiserver.fuzz.town import KINDS, Town, gathered, town_of
from tests.apiserver.stage import OperatorProcess, container, now

OF_EACH: Final = int(os.environ.get("DDPJOB_FUZZED", "10000"))
"""Another number is for those who have less time."""
PHASES: Final = 4
MOST_MIB: Final = 300
MOST: Final = {"p50": 20.0, "p99": 60.0}
"""Times as long as next to plain requests. The fuzz is as fast as the machine allows: this tells slow from starved."""
PLAIN: Final = 4
"""The part of the time and of the requests of a phase that the comparison takes, at the same rate."""
AT_LEAST: Final = 0.1
"""Seconds below which a wait is not compared: it is noise on a busy machine."""
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-fuzzed.json"

pytestmark = pytest.mark.timeout(3600)


async def plain_requests(town: Town, count: int, seconds: float) -> None:
    """So many requests of a bare client in about so many seconds: pods are created, run, and are deleted."""

    async def one(number: int) -> None:
        await asyncio.sleep(max(0.0, begun + seconds * number / count - time.monotonic()))
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"plain-{number}"},
            "spec": {"containers": [{"name": "trainer", "image": "i"}]},
        }
        await town.wire.send("POST", PODS.path(town.elsewhere), text_of(pod))
        status = {"phase": "Running", "containerStatuses": [container({"running": {"startedAt": now()}})]}
        path = PODS.path(town.elsewhere, f"plain-{number}")
        await town.wire.send("PUT", f"{path}/status", text_of({**pod, "status": status}))
        await town.wire.send("DELETE", f"{path}?gracePeriodSeconds=0")

    begun = time.monotonic()
    await gathered((one(number) for number in range(0, count, 3)), 4 * len(KINDS))


def writes(town: Town, begun: int) -> int:
    """Requests to the fuzzed namespaces since then that were more than a look."""
    found = [entry for kind in KINDS for entry in town.plane.audit(town.namespaces[kind], None, begun)]
    return sum(entry["verb"] not in ("get", "list", "watch") for entry in found)


async def test_10_000_of_each_neither_stop_the_operator_nor_cost_a_healthy_job_an_attempt(
    assets: Path, tmp_path: Path
) -> None:
    plane = ControlPlane.start(assets, tmp_path / "control-plane")
    waits: dict[str, list[float]] = {"fuzz": [], "plain": []}
    try:
        async with town_of(plane, tmp_path, OperatorProcess) as town:
            for phase in range(PHASES):
                begun = time.monotonic()
                async with healthy_jobs(town, 2 * phase) as healthy:
                    await fuzz(town, seeds_of(phase * OF_EACH // PHASES, OF_EACH // PHASES))
                took = time.monotonic() - begun
                healthy.judge()
                waits["fuzz"] += first_pods(town, healthy)
                requests = writes(town, healthy.begun)
                async with healthy_jobs(town, 2 * phase + 1) as healthy:
                    await plain_requests(town, requests // PLAIN, took / PLAIN)
                healthy.judge()
                waits["plain"] += first_pods(town, healthy)
                await town.check()
                figures = {**_figures(waits), "requests": requests, "seconds": round(took), **town.counts}
                figures["memory_mib_max"] = round(max(town.memory), 1)
                figures["memory_mib_now"] = round(town.memory[-1], 1)
                print(json.dumps(figures))  # noqa: T201 shown with -s, and kept
                FIGURES.parent.mkdir(parents=True, exist_ok=True)
                FIGURES.write_text(json.dumps(figures, indent=1))
    finally:
        plane.stop()
    assert figures["memory_mib_max"] < MOST_MIB, figures
    if not os.environ.get("DDPJOB_FUZZ"):
        for what in ("jobs POST", "jobs PUT status", "pods PUT status", "messages PUT status"):
            taken, refused = figures[f"{what} taken"], figures[f"{what} refused"]
            assert taken > refused / 3, f"the API server refuses nearly all of {what}, which tests nothing: {figures}"
    for which, most in MOST.items():
        assert figures["fuzz"][which] < most * max(AT_LEAST, figures["plain"][which]), figures


def _figures(waits: dict[str, list[float]]) -> Json:
    found: Json = {}
    for name, seconds in waits.items():
        p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
        found[name] = {"jobs": len(seconds), "p50": round(statistics.median(seconds), 3), "p99": round(p99, 3)}
    found["ratio of p99"] = round(found["fuzz"]["p99"] / found["plain"]["p99"], 2)
    return found
