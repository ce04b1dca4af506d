"""Health and readiness over HTTP, with their reasons."""

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from ddpjob_operator.health import problems
from ddpjob_operator.server import serve


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_health_and_readiness_are_answered_with_their_reasons() -> None:
    wrong: list[str] = []
    missing = ["pods are not listed yet"]
    async with serve(
        0,
        metrics=lambda: b"",
        health=lambda: wrong,
        readiness=lambda: missing,
        remarks=lambda: ["namespace a is not served"],
    ) as port:
        assert await fetch(port, "/healthz") == (200, "ok\n")
        wrong += problems((lambda: "a", lambda: None, lambda: "b"))
        assert await fetch(port, "/healthz") == (503, "a\nb\n")
        assert await fetch(port, "/readyz") == (503, "pods are not listed yet\nnamespace a is not served\n")
        missing.clear()
        assert await fetch(port, "/readyz") == (200, "ok\nnamespace a is not served\n")


async def test_a_scraper_that_goes_away_in_the_middle_of_an_answer_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = False
    ended = asyncio.Event()

    def parts() -> Iterator[bytes]:
        try:
            # As long as it is read; then a few more, which nobody takes.
            while not gone:
                yield b"x" * 65_536
            yield from [b"x" * 65_536] * 100
        finally:
            ended.set()

    async with serve(0, metrics=parts, health=list, readiness=list) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(1_000)
        writer.transport.abort()
        gone = True
        await ended.wait()
        assert await fetch(port, "/healthz") == (200, "ok\n")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
