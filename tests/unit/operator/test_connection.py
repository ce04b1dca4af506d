"""Requests to an API server, as a server sees them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from kubernetes.aio.client import Configuration

from ddpjob_operator.connection import Connection
from ddpjob_operator.exchange import ExchangeError
from ddpjob_operator.kubeconfig import KubeConfig
from tests.ports import free_port

LIMITS = aiohttp.ClientTimeout(total=10)


@dataclass
class Server:
    """Keeps what it was asked."""

    url: str
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.requests.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        if request.path.startswith("/moved"):
            return web.Response(status=302, headers={"Location": "/elsewhere"})
        return web.json_response({})


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    port = free_port()
    made = Server(f"http://127.0.0.1:{port}")
    runner = web.ServerRunner(web.Server(made.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield made
    await runner.cleanup()


def configuration(server: str) -> Configuration:
    made = Configuration()
    made.host = server
    return made


Ask = Callable[..., Awaitable[int]]


async def in_pieces(connection: Connection, method: str, address: str, body: dict[str, object] | None = None) -> int:
    response = await connection.request(method, address, body, limits=LIMITS)
    response.release()
    return response.status


async def at_once(connection: Connection, method: str, address: str, body: dict[str, object] | None = None) -> int:
    codes: list[int] = []
    answer = await connection.ask(method, address, body, seconds=10, most=10_000, answering=codes.append)
    assert codes == [answer.head.status]
    return answer.head.status


@pytest.fixture(params=[in_pieces, at_once], ids=["in pieces", "at once"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Both ways in which an answer is read."""
    made: Ask = request.param
    return made


async def test_a_request_arrives_as_it_was_made_and_is_signed_with_the_newest_token(server: Server, ask: Ask) -> None:
    made = configuration(server.url)
    tokens = iter(("first", "second"))
    made.refresh_api_key_hook = lambda each: each.api_key.update(BearerToken=f"Bearer {next(tokens)}")
    made.api_key["BearerToken"] = "Bearer none"
    connection = Connection(KubeConfig(made))
    assert await ask(connection, "GET", "/api/v1/pods?labelSelector=a%2Fb%3Dc%2Cd&limit=5") == 200
    assert await ask(connection, "PUT", "/api/v1/pods", {"a": "ä"}) == 200
    await connection.close()
    (get, path, headers, empty), (put, _, later, body) = server.requests
    assert (get, path, empty) == ("GET", "/api/v1/pods?labelSelector=a%2Fb%3Dc%2Cd&limit=5", b"")
    assert (put, body) == ("PUT", '{"a":"ä"}'.encode())
    assert headers["User-Agent"] == later["User-Agent"] == "ddpjob-operator"
    assert later["Content-Type"] == headers["Accept"] == "application/json"
    assert (headers["Authorization"], later["Authorization"]) == ("Bearer first", "Bearer second")


async def test_a_token_is_not_taken_elsewhere(server: Server, ask: Ask) -> None:
    connection = Connection(KubeConfig(configuration(server.url)))
    assert await ask(connection, "GET", "/moved") == 302
    await connection.close()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("variables", "proxied"),
    [
        ({}, 0),
        ({"http_proxy": "http://{}"}, 1),
        ({"https_proxy": "http://{}"}, 0),
        ({"http_proxy": "http://{}", "no_proxy": "10.0.0.0,api.example"}, 0),
        ({"http_proxy": "http://{}", "no_proxy": "other.example"}, 1),
    ],
)
async def test_a_proxy_of_the_environment_is_used_for_the_addresses_that_it_is_for(
    server: Server, ask: Ask, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxied: int
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(server.url.removeprefix("http://")))
    connection = Connection(KubeConfig(configuration("http://api.example:1")))
    try:
        status = await ask(connection, "GET", "/api")
    except (aiohttp.ClientError, OSError):
        status = 0
    await connection.close()
    assert status == 200 * proxied
    assert [path for _, path, _, _ in server.requests] == ["http://api.example:1/api"] * proxied


async def test_an_answer_through_a_proxy_that_does_not_end_is_an_error_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        writer.close()

    async with await asyncio.start_server(cut_off, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        connection = Connection(KubeConfig(configuration("http://api.example:1")))
        codes: list[int] = []
        with pytest.raises(ExchangeError):
            await connection.ask("GET", "/api", None, seconds=10, most=10_000, answering=codes.append)
        await connection.close()
    assert codes == [200]
