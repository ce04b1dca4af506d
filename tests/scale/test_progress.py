"""How old what `kubectl get ddpjobs` shows is, with hundreds of trainings on a real API server."""

import asyncio
import json
import os
import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
from aiohttp import web

from ddpjob_core.api.resources import JOBS
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.connection import connect
from ddpjob_operator.informer import Informer
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Admin, OperatorProcess, until
from tests.scale.kwok import PODS_PER_NODE, kwok_nodes

STEPS_A_SECOND: Final = 10
SECONDS: Final = 60
SAMPLE_EVERY: Final = 0.25
POLL: Final = 2.0
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-progress.json"

pytestmark = pytest.mark.timeout(900)


class Clock:
    """Training time, which every endpoint tells as its step: the age of a shown step is then known."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def step(self) -> int:
        return 1 + int((time.monotonic() - self._begun) * STEPS_A_SECOND)


def shown_steps(jobs: Store[JobRecord]) -> list[int]:
    """The steps that the jobs' statuses show, of those that show one."""
    shown = (job.status.progress for job in jobs if job.status is not None)
    return [progress.step for progress in shown if progress is not None and progress.step]


@dataclass(frozen=True)
class Figures:
    """What was measured; ages in seconds."""

    jobs: int
    age_p50: float
    age_p99: float
    age_max: float
    writes_per_second: float
    polls_per_second: float
    cpu_percent_per_100_polls_per_second: float
    operator_memory_mib: float


@asynccontextmanager
async def endpoints(clock: Clock) -> AsyncIterator[int]:
    """One server that answers for every pod: all of 127.0.0.0/8 is this machine."""

    async def progress(_: web.Request) -> web.Response:
        report = {
            "epoch": 1,
            "totalEpochs": 9,
            "step": clock.step,
            "totalSteps": 10**6,
            "loss": 1 / clock.step,
            "samplesPerSecond": 100.0,
            "activity": "step",
            "secondsSinceStep": 0.1,
            "quietSeconds": 0.1,
        }
        return web.json_response(report)

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)  # noqa: S104 the addresses of all pods
    await site.start()
    assert site._server is not None
    yield site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    await runner.cleanup()


@pytest.mark.parametrize(("jobs", "promised"), [(250, 5.0), (1000, 20.0)])
async def test_what_is_shown_is_as_fresh_as_promised_and_no_job_is_starved(
    assets: Path, tmp_path: Path, jobs: int, promised: float
) -> None:
    kwok = os.environ.get("DDPJOB_KWOK")
    assert kwok, "DDPJOB_KWOK names no program: make test-full builds it"
    plane = ControlPlane.start(assets, tmp_path / "control-plane")
    try:
        with kwok_nodes(plane, Path(kwok), -(-jobs // PODS_PER_NODE) + 1):
            figures = await _measure(plane, tmp_path, jobs)
    finally:
        plane.stop()
    _keep(figures)
    assert figures.age_p99 <= promised + POLL, figures
    assert figures.age_max <= 2 * (promised + POLL), figures


async def _measure(plane: ControlPlane, folder: Path, jobs: int) -> Figures:
    namespace, clock, store = plane.new_namespace(), Clock(), Store[JobRecord]()
    admin = Admin(await connect(str(plane.admin_kubeconfig)))
    informer = Informer(admin.kube, JOBS, store, job_record, namespace=namespace, selector="", clock=time.monotonic)
    operator = OperatorProcess(plane.operator_kubeconfig, folder / "operator.log")
    async with endpoints(clock) as port:
        following = asyncio.create_task(informer.run())
        try:
            await operator.start()
            slots = asyncio.Semaphore(20)
            await asyncio.gather(*(_create(admin, slots, namespace, f"job-{number}", port) for number in range(jobs)))
            await until("every job shows progress", lambda: len(shown_steps(store)) == jobs, patience=300)
            return await _sample(operator, store, clock, jobs)
        finally:
            following.cancel()
            await operator.end()
            await admin.connection.close()


async def _create(admin: Admin, slots: asyncio.Semaphore, namespace: str, name: str, port: int) -> None:
    spec = {"trainer": {"image": "i", "script": "train.py"}, "metrics": {"port": port}, "procsPerNode": 1}
    async with slots:
        await admin.kube.create(
            JOBS,
            {
                "apiVersion": "ddpjob.dev/v1alpha1",
                "kind": "DDPJob",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            },
        )


async def _sample(operator: OperatorProcess, store: Store[JobRecord], clock: Clock, jobs: int) -> Figures:
    process = psutil.Process(operator.pid)
    begun, cpu, before = time.monotonic(), _cpu(process), await _counters(operator)
    ages: list[float] = []
    while time.monotonic() - begun < SECONDS:
        await asyncio.sleep(SAMPLE_EVERY)
        now = clock.step
        ages += [(now - step) / STEPS_A_SECOND for step in shown_steps(store)]
    passed, after = time.monotonic() - begun, await _counters(operator)
    polls, writes = ((after[name] - before[name]) / passed for name in ("polls", "writes"))
    return Figures(
        jobs,
        statistics.median(ages),
        statistics.quantiles(ages, n=100)[98],
        max(ages),
        round(writes, 1),
        round(polls, 1),
        round((_cpu(process) - cpu) / passed * 100 / (polls / 100), 1),
        round(process.memory_info().rss / 2**20, 1),
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _counters(operator: OperatorProcess) -> dict[str, float]:
    _, text = await operator.fetch("/metrics")
    return {
        "polls": _total(text, r'ddpjob_operator_progress_polls_total\{outcome="ok"\}'),
        "writes": _total(text, r'ddpjob_operator_api_requests_total\{[^}]*resource="ddpjobs"[^}]*verb="update"\}'),
    }


def _total(text: str, series: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{series} (\S+)$", text, re.MULTILINE))


def _keep(figures: Figures) -> None:
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    known[str(figures.jobs)] = asdict(figures)
    FIGURES.write_text(json.dumps(known, indent=1))
