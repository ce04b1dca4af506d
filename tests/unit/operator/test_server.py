"""Health and readiness over HTTP, with their reasons."""

import aiohttp

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
