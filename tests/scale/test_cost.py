"""What an operator costs with thousands of jobs that rest, and with jobs and pods as large as the API server takes."""

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import psutil
import pytest

from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.controlplane import ControlPlane, Json, wait_for
from tests.apiserver.stage import OperatorProcess, until
from tests.scale.stored import finished_jobs, job_of, pod_of, store, suspended_status

FINISHED: Final = 20_000
LARGE: Final = 60
"""More than a chunk of the LIST of jobs."""
MOST_MIB: Final = 300
LONGEST_HOLD: Final = 0.05
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-cost.json"

SOURCES: Final = "".join(path.read_text() for path in sorted((FIGURES.parents[2] / "operator").rglob("*.py")))[: 2**20]

pytestmark = pytest.mark.timeout(1200)


@asynccontextmanager
async def operator_with(
    assets: Path, folder: Path, objects: Iterable[Json], *, at_once: int = 100
) -> AsyncIterator[OperatorProcess]:
    """An operator that was started when these objects were there, and has looked at each job; see `store`."""
    plane = ControlPlane.start(assets, folder / "control-plane")
    operator = OperatorProcess(plane.operator_kubeconfig, folder / "operator.log")
    try:
        namespace = plane.new_namespace()
        last: Json = {}

        def placed() -> Iterator[Json]:
            nonlocal last
            for each in objects:
                last = {**each, "metadata": {**each["metadata"], "namespace": namespace}}
                yield last

        store(plane, placed(), at_once=at_once)
        # The API server's own cache follows etcd with a delay.
        resource = PODS if last["kind"] == "Pod" else JOBS
        path = resource.path(namespace, last["metadata"]["name"])
        wait_for(lambda: plane.admin.find(path), "the API server to serve the objects", 300)
        await operator.start()
        await until("the operator is ready", lambda: is_ready(operator), patience=600)
        # Each job is looked at once.
        await until("all jobs have been looked at", lambda: is_idle(operator), patience=600)
        yield operator
    finally:
        await operator.end()
        plane.stop()


async def is_ready(operator: OperatorProcess) -> bool:
    return (await operator.fetch("/readyz"))[0] == 200


async def is_idle(operator: OperatorProcess) -> bool:
    return await operator.metric("queue_depth") == 0 and await operator.metric("leading") == 1


def memory_mib(operator: OperatorProcess) -> float:
    return float(round(psutil.Process(operator.pid).memory_info().rss / 2**20, 1))


def peak_mib(operator: OperatorProcess) -> float:
    """The most memory that it has had at any moment: that is what a container's limit ends it for."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{operator.pid}/status").read_text())
    assert found
    return round(int(found[1]) / 2**10, 1)


async def longest_answer(session: aiohttp.ClientSession, address: str, until_done: asyncio.Task[object]) -> float:
    """The longest that a small request took while the task ran: the event loop was held for no longer."""
    longest = 0.0
    while not until_done.done():
        begun = time.monotonic()
        async with session.get(address) as response:
            await response.read()
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(0.002)
    return longest


def keep(name: str, figures: Json) -> None:
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    FIGURES.write_text(json.dumps({**known, name: figures}, indent=1))


async def test_twenty_thousand_finished_jobs_fit_and_a_scrape_of_them_holds_nobody_up(
    assets: Path, tmp_path: Path
) -> None:
    async with (
        operator_with(assets, tmp_path, finished_jobs("test-1", FINISHED)) as operator,
        aiohttp.ClientSession() as session,
    ):
        address = f"http://127.0.0.1:{operator.port()}"
        idle = await longest_answer(session, f"{address}/readyz", asyncio.create_task(asyncio.sleep(5)))
        begun = time.monotonic()
        scrapes = asyncio.create_task(scrape(session, f"{address}/metrics", 3))
        busy = await longest_answer(session, f"{address}/readyz", scrapes)
        figures = {
            "memory_mib": memory_mib(operator),
            "scrape_seconds": round((time.monotonic() - begun) / 3, 2),
            "scrape_mib": round(await scrapes / 2**20, 1),
            "longest_answer_idle_seconds": round(idle, 3),
            "longest_answer_during_scrapes_seconds": round(busy, 3),
        }
    keep("20,000 finished jobs", figures)
    assert figures["memory_mib"] < MOST_MIB, figures
    # Less what the machine itself holds a process up for.
    assert busy - idle < LONGEST_HOLD, figures


async def scrape(session: aiohttp.ClientSession, address: str, times: int) -> int:
    size = 0
    for _ in range(times):
        async with session.get(address) as response:
            size = len(await response.read())
    return size


ONE_TEXT: Final = {"metadata": {"annotations": {f"a{n}": "x" * 250_000 for n in range(5)}}}
WIDE_TEXT: Final = {"metadata": {"annotations": {f"a{n}": "\N{ROCKET}" + "x" * 250_000 for n in range(5)}}}
"""Four times as large as a Python text."""
MANY_LISTS: Final = {"spec": {"x": [[]] * 430_000}}


@pytest.mark.parametrize("template", [ONE_TEXT, WIDE_TEXT, MANY_LISTS], ids=["text", "wide-text", "lists"])
async def test_jobs_as_large_as_etcd_takes_leave_the_operator_its_memory(
    assets: Path, tmp_path: Path, request: pytest.FixtureRequest, template: Json
) -> None:
    large = [job_of("test-1", f"large-{number}", suspend=True, template=template) for number in range(LARGE)]
    async with operator_with(assets, tmp_path, large, at_once=1) as operator:
        figures = {"memory_mib": memory_mib(operator), "peak_mib": peak_mib(operator)}
    keep(f"{LARGE} suspended jobs of 1.3 MB, {request.node.callspec.id}", figures)
    assert figures["peak_mib"] < MOST_MIB, figures


RESTING: Final = 300
MOST_WITH_RESTING: Final = 195
"""MiB, some of which a chunk of the LIST took. A thousand had 610 while they were kept as they are, and have 248."""


async def test_suspended_jobs_that_hold_all_that_a_job_may_leave_the_operator_its_memory(
    assets: Path, tmp_path: Path
) -> None:
    """Of what people write: text that cannot be compressed takes what it has."""
    jobs = (resting_job(f"rests-{number:04d}") for number in range(RESTING))
    async with operator_with(assets, tmp_path, jobs, at_once=2) as operator:
        figures = {
            "memory_mib": memory_mib(operator),
            "peak_mib": peak_mib(operator),
            "cached_mib": round((await operator.metric("cached_job_bytes", namespace="test-1") or 0) / 2**20, 1),
        }
    keep(f"{RESTING} suspended jobs of 512 KiB", figures)
    assert figures["memory_mib"] < MOST_WITH_RESTING, figures
    assert figures["cached_mib"] > 1, figures


def resting_job(name: str) -> Json:
    """A suspended job whose template and arguments hold the text of programs."""
    page, size = SOURCES[: 30 * 1024], 250 * 1024
    trainer = {"image": "i", "module": "m", "args": [f"{name} {page}"] * (size // len(page))}
    template = {"metadata": {"annotations": {"program": f"{name} {SOURCES}"[:size]}}}
    return job_of("test-1", name, status=suspended_status(), suspend=True, trainer=trainer, template=template)


PODS_OF_A_CHUNK: Final = 500
ONE_VALUE: Final = [{"name": "TEXT", "value": "x" * 500_000}]
ESCAPED: Final = [{"name": "TEXT", "value": "<" * 500_000}]
"""Six times as long in JSON."""
MANY_VALUES: Final = [{"name": f"N{number}", "value": "0"} for number in range(20_000)]


@pytest.mark.parametrize("env", [ONE_VALUE, ESCAPED, MANY_VALUES], ids=["text", "escaped", "values"])
async def test_a_tenants_large_pods_leave_the_operator_its_memory_when_it_starts(
    assets: Path, tmp_path: Path, request: pytest.FixtureRequest, env: list[Json]
) -> None:
    """Small ones come first, so that many are asked for at once when the large ones begin."""
    small = [pod_of("test-1", f"a-{number:04d}") for number in range(PODS_OF_A_CHUNK)]
    large = (pod_of("test-1", f"b-{number:04d}", env=env) for number in range(PODS_OF_A_CHUNK))
    async with operator_with(assets, tmp_path, itertools.chain(small, large), at_once=2) as operator:
        figures = {"memory_mib": memory_mib(operator), "peak_mib": peak_mib(operator)}
    keep(f"{PODS_OF_A_CHUNK} pods of 0.5 MB, {request.node.callspec.id}", figures)
    assert figures["peak_mib"] < MOST_MIB, figures
