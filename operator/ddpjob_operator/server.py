"""/metrics, /healthz and /readyz over HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def serve(
    port: int,
    *,
    metrics: Callable[[], Iterable[bytes]],
    health: Callable[[], list[str]],
    readiness: Callable[[], list[str]],
    remarks: Callable[[], list[str]] = list,
) -> AsyncIterator[int]:
    """Serve on all addresses while entered; yields the port, which the system chooses if 0 was asked for.

    Args:
        port: TCP port.
        metrics: parts of a text in Prometheus' format, each of which takes little time.
        health: what is wrong, empty where nothing is.
        readiness: what is still missing before work can begin.
        remarks: what is said besides that the process is ready.
    """

    async def show_metrics(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
        # A scraper goes away at its timeout or at its limit of bytes: the operator logs no error.
        with suppress(ConnectionError):
            await response.prepare(request)
            await write_metrics(response)
        return response

    async def write_metrics(response: web.StreamResponse) -> None:
        text: list[bytes] = []
        for part in metrics():
            text.append(part)
            if sum(map(len, text)) >= _CHUNK:
                await response.write(b"".join(text))
                text.clear()
            # A scrape of thousands of jobs takes long enough to keep them waiting.
            await asyncio.sleep(0)
        await response.write(b"".join(text))

    def answer(wrong: list[str], besides: list[str]) -> web.Response:
        status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
        return web.Response(text="\n".join((*(wrong or ["ok"]), *besides)) + "\n", status=status)

    async def show_health(_: web.Request) -> web.Response:
        return answer(health(), [])

    async def show_readiness(_: web.Request) -> web.Response:
        return answer(readiness(), remarks())

    app = web.Application()
    app.add_routes(
        [web.get("/metrics", show_metrics), web.get("/healthz", show_health), web.get("/readyz", show_readiness)],
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        listener = _listen(port)
        await web.SockSite(runner, listener).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()


def _listen(port: int) -> socket.socket:
    # One socket for both families: two sockets would get two ports if 0 is asked for.
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
