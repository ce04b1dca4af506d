"""Endpoints that answer 1 KB of progress, in a process of their own."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

from hack.bench.serving import served

_BYTES: Final = 1024


def serve(ready: Connection) -> None:
    """Answer /progress with 1 KB at every loopback address; sends the port when it can be asked."""
    asyncio.run(_serve(ready))


async def _serve(ready: Connection) -> None:
    body = _body()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = head.encode() + body

    async def show(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(show, "0.0.0.0", 0, backlog=1024)  # noqa: S104 the addresses of all pods
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _body() -> bytes:
    report = {
        "step": 1200,
        "totalSteps": 100000,
        "epoch": 3,
        "totalEpochs": 90,
        "loss": 2.25,
        "samplesPerSecond": 812.5,
        "etaSeconds": 86000,
        "lastStepTime": "2026-01-01T00:00:00Z",
        "lastCheckpointStep": 1000,
        "activity": "step",
        "activitySeconds": 0.4,
        "secondsSinceStep": 0.4,
        "processRestarts": 0,
    }
    report["stack"] = "x" * (_BYTES - len(json.dumps({**report, "stack": ""})))
    return json.dumps(report).encode()


@contextmanager
def endpoints(*, refuse: bool) -> Iterator[int]:
    """The port of the endpoints."""
    if refuse:
        # Nobody listens there: only the superuser could.
        yield 1
        return
    with served(serve) as port:
        yield port
