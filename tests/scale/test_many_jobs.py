"""A user's 10,000 jobs of one node, suspended, finished and crash-looping, next to the jobs of another one."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from ddpjob_core.api.resources import JOBS, PODS
from ddpjob_operator.connection import connect
from tests.apiserver.controlplane import ControlPlane, Json, wait_for
from tests.apiserver.stage import Admin, Kubelet, OperatorProcess, until
from tests.scale.stored import finished_jobs, job_of, store, suspended_status
from tests.scale.test_cost import longest_answer, memory_mib, peak_mib

SUSPENDED: Final = 3_400
FINISHED: Final = 3_300
LOOPING: Final = 3_300
OTHERS: Final = 60
EVERY: Final = 0.5
"""Seconds from the creation of one of the other jobs to that of the next."""
MOST_MIB: Final = 300
LONGEST_HOLD: Final = 1.0
"""Seconds for which nothing else was answered."""
MOST: Final = {"p50": 10.0, "p99": 50.0}
"""Times as long as without them: the first pods of all that crash-loop are created at the same time, which no user can
ask for by the API, and the API server has its part in it. This tells slow from starved."""
AT_LEAST: Final = 0.1
"""Seconds below which a wait is not compared: it is noise on a busy machine."""
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-many-jobs.json"

pytestmark = pytest.mark.timeout(1500)


class Failing(dict[str, int]):
    """Exit codes of pods that all fail."""

    def __contains__(self, _: object) -> bool:
        return True

    def __missing__(self, _: str) -> int:
        return 1


@dataclass
class Town:
    """An operator that serves a user with many jobs, and another one with few."""

    plane: ControlPlane
    admin: Admin
    operator: OperatorProcess
    many: str
    others: str

    async def waits(self, phase: str) -> list[float]:
        """Seconds from the creation of each job of the other user to that of its pod, as the API server has them."""
        begun = self.plane.audit_size
        names = [f"{phase}-{number}" for number in range(OTHERS)]
        for name in names:
            due = time.monotonic() + EVERY
            job = job_of(self.others, name, nodes=1, trainer={"image": "i", "script": "t.py"})
            job["metadata"] = {"name": name, "namespace": self.others}
            await self.admin.kube.create(JOBS, job)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        found: dict[str, float] = {}

        def all_posted() -> bool:
            found.update(self._posted(begun))
            return found.keys() == set(names)

        await until("all other jobs have their pod", all_posted, 120)
        return list(found.values())

    def _posted(self, begun: int) -> dict[str, float]:
        created: dict[str, dict[str, datetime]] = {"ddpjobs": {}, "pods": {}}
        for entry in self.plane.audit(self.others, None, begun):
            what = entry["objectRef"]
            done = entry["verb"] == "create" and entry["responseStatus"]["code"] == HTTPStatus.CREATED
            if done and what["resource"] in created and not what.get("subresource"):
                name = str(what["name"]).partition("-a0-")[0]
                created[what["resource"]][name] = datetime.fromisoformat(entry["stageTimestamp"])
        jobs, pods = created.values()
        return {name: (pods[name] - at).total_seconds() for name, at in jobs.items() if name in pods}


@asynccontextmanager
async def town_of(assets: Path, folder: Path) -> AsyncIterator[Town]:
    plane = ControlPlane.start(assets, folder / "control-plane")
    many, others = plane.new_namespace(), plane.new_namespace()
    served = [f"--namespace={namespace}" for namespace in (many, others)]
    operator = OperatorProcess(plane.operator_kubeconfig, folder / "operator.log", *served)
    try:
        async with AsyncExitStack() as ends:
            admin = Admin(await connect(str(plane.admin_kubeconfig)))
            ends.push_async_callback(admin.connection.close)
            await operator.start()
            ends.push_async_callback(operator.end)
            await until("the operator is ready", partial(answers, operator), 120)
            yield Town(plane, admin, operator, many, others)
    finally:
        plane.stop()


async def answers(operator: OperatorProcess) -> bool:
    return (await operator.fetch("/readyz"))[0] == HTTPStatus.OK


def jobs_of_one_user(namespace: str) -> Iterator[Json]:
    resting = (job_of(namespace, f"rests-{n:04d}", status=suspended_status(), suspend=True) for n in range(SUSPENDED))
    restart = {"maxRestarts": 1_000, "noProgressLimit": 0, "backoffSeconds": 0, "maxBackoffSeconds": 1}
    spec = {"nodes": 1, "trainer": {"image": "i", "script": "t.py"}, "restart": restart}
    looping = (job_of(namespace, f"loops-{number:04d}", **spec) for number in range(LOOPING))
    return chain(resting, finished_jobs(namespace, FINISHED), looping)


async def test_10_000_jobs_of_one_user_neither_hold_up_the_jobs_of_others_nor_take_the_operators_memory(
    assets: Path, tmp_path: Path
) -> None:
    async with town_of(assets, tmp_path) as town, aiohttp.ClientSession() as session:
        alone = await town.waits("alone")
        kubelet = Kubelet(town.admin, town.many, exits=Failing())
        playing = asyncio.create_task(kubelet.run())
        store(town.plane, jobs_of_one_user(town.many))
        path = JOBS.path(town.many, f"loops-{LOOPING - 1:04d}")
        await asyncio.to_thread(wait_for, lambda: town.plane.admin.find(path), "the API server to serve the jobs", 300)
        address = f"http://127.0.0.1:{town.operator.port()}/readyz"
        asking = asyncio.create_task(town.waits("next"))
        held = await longest_answer(session, address, asking)
        with_them = await asking
        restarts = [
            job.get("status", {}).get("restarts", {}).get("counted", 0)
            for job in await town.admin.all(JOBS, town.many)
            if job["metadata"]["name"].startswith("loops")
        ]
        playing.cancel()
        figures: Json = {
            "alone": _figures(alone),
            "next_to_them": _figures(with_them),
            "longest_answer_seconds": round(held, 3),
            "restarts": sum(restarts),
            "memory_mib": memory_mib(town.operator),
            "peak_mib": peak_mib(town.operator),
        }
        pods = len(await town.admin.all(PODS, town.many))
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=1))
    assert sum(restarts) > 0, f"no job has crashed, which tests nothing: {pods} pods"
    assert figures["peak_mib"] < MOST_MIB, figures
    assert held < LONGEST_HOLD, figures
    for which, most in MOST.items():
        assert figures["next_to_them"][which] < most * max(AT_LEAST, figures["alone"][which]), figures


def _figures(seconds: list[float]) -> Json:
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    return {"p50": round(statistics.median(seconds), 3), "p99": round(p99, 3), "max": round(max(seconds), 3)}
