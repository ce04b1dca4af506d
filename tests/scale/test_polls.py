"""How often a healthy job is asked for its progress next to endpoints that never answer, over real sockets."""

import asyncio
import json
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import Final

import pytest
from aiohttp import web

from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.memory import Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.wire.progress import PollTarget

EVERY: Final = 2.0
HEALTHY: Final = 10
DEAD: Final = 200
SILENT: Final = 512
SECONDS: Final = 60
SETTLES: Final = 10
FIGURES: Final = Path(__file__).resolve().parents[2] / ".build/results/scale-polls.json"

pytestmark = pytest.mark.timeout(300)


@dataclass
class Asked:
    """When each healthy job was asked, and how all polls ended."""

    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    outcomes: list[str] = field(default_factory=list)


@asynccontextmanager
async def healthy_endpoint(asked: Asked) -> AsyncIterator[int]:
    """Answers at once, on all loopback addresses."""

    async def progress(request: web.Request) -> web.Response:
        asked.times[request.host].append(time.monotonic())
        return web.json_response({"step": len(asked.times[request.host]), "secondsSinceStep": 0.1, "activity": "step"})

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()  # noqa: S104 the addresses of all pods
    yield runner.addresses[0][1]
    await runner.cleanup()


@asynccontextmanager
async def dead_endpoint() -> AsyncIterator[int]:
    """Connections to it are neither made nor refused, as behind a network policy: its queue is full."""
    with socket(AF_INET, SOCK_STREAM) as listener:
        listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", 0))  # noqa: S104 the addresses of all pods
        listener.listen(0)
        port = int(listener.getsockname()[1])
        fillers = [socket(AF_INET, SOCK_STREAM) for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)  # noqa: FBT003 the interface of sockets
            filler.connect_ex(("127.0.0.1", port))
        await asyncio.sleep(0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("127.200.0.1", port), 3)
        yield port
        for filler in fillers:
            filler.close()


@asynccontextmanager
async def silent_endpoint() -> AsyncIterator[int]:
    """Accepts every connection and never says anything."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(silence, "0.0.0.0", 0, backlog=1024)  # noqa: S104 the addresses of all pods
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def polling(asked: Asked) -> AsyncIterator[tuple[ProgressPoller, Memories]]:
    """The operator's own poller, by its own HTTP."""
    memories = Memories()
    poller = ProgressPoller(
        memories=memories,
        changed=lambda _: None,
        count=asked.outcomes.append,
        drop=lambda _: None,
        open_transport=open_transport,
        now=lambda: datetime.now(UTC),
        interval=EVERY,
    )
    task = asyncio.create_task(poller.run())
    yield poller, memories
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def _gaps(asked: Asked, seconds: float) -> list[float]:
    """Seconds between two polls of each healthy job in the next so many seconds."""
    for times in asked.times.values():
        del times[:-1]
    await asyncio.sleep(seconds)
    assert len(asked.times) == HEALTHY
    return [after - before for times in asked.times.values() for before, after in pairwise(times)]


async def test_healthy_jobs_are_asked_every_two_seconds_next_to_dead_endpoints_and_silent_ranks() -> None:
    asked = Asked()
    async with (
        healthy_endpoint(asked) as healthy,
        dead_endpoint() as dead,
        silent_endpoint() as silent,
        polling(asked) as (poller, memories),
    ):

        def follow(name: str, *targets: PollTarget) -> None:
            poller.follow(memories.of(name, ("team", name)), targets)

        for number in range(HEALTHY):
            follow(f"healthy-{number}", PollTarget(0, f"127.10.0.{number + 1}", healthy))
        await asyncio.sleep(SETTLES)
        figures = {"alone": _figures(await _gaps(asked, SECONDS / 2))}
        for number in range(DEAD):
            follow(f"dead-{number}", PollTarget(0, f"127.20.0.{number + 1}", dead))
        ranks = (PollTarget(0, f"127.30.{rank // 256}.{rank % 256}", silent, rank, rank // 8) for rank in range(SILENT))
        follow("silent", *ranks)
        await asyncio.sleep(SETTLES)
        asked.outcomes.clear()
        figures["next to them"] = _figures(await _gaps(asked, SECONDS))
        ends = {outcome: asked.outcomes.count(outcome) for outcome in set(asked.outcomes)}
    _keep({**figures, "outcomes": ends})
    # Each of them is asked, and none of them answers.
    assert ends["timeout"] > DEAD + SILENT, ends
    assert set(ends) == {"ok", "timeout"}, ends
    assert figures["next to them"]["p50"] < 1.1 * EVERY, figures
    assert figures["next to them"]["p99"] < max(1.25 * EVERY, 1.1 * figures["alone"]["max"]), figures


def _figures(gaps: list[float]) -> dict[str, float]:
    quantiles = statistics.quantiles(gaps, n=100)
    return {"p50": round(quantiles[49], 3), "p99": round(quantiles[98], 3), "max": round(max(gaps), 3)}


def _keep(figures: dict[str, object]) -> None:
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=1))
