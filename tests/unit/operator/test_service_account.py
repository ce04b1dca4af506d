"""The service account of the operator's pod, as the kubelet mounts it."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from clock import Clock

from ddpjob_operator.connection import Connection
from ddpjob_operator.credentials import NoClusterError
from ddpjob_operator.service_account import ServiceAccount, namespace_of_pod
from tests.certificates import self_signed
from tests.ports import free_port

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
LIMITS = aiohttp.ClientTimeout(total=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    certificate, _ = self_signed(tmp_path)
    certificate.rename(tmp_path / "ca.crt")
    return tmp_path


@pytest_asyncio.fixture
async def signed(tmp_path: Path) -> AsyncIterator[tuple[dict[str, str], list[str | None]]]:
    """An API server over TLS: where a pod finds it, and how what it was asked was signed."""
    seen: list[str | None] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    certificate, context = self_signed(tmp_path)
    certificate.rename(tmp_path / "ca.crt")
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    yield {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}, seen
    await runner.cleanup()


async def ask(connection: Connection) -> None:
    (await connection.request("GET", "/api", None, limits=LIMITS)).release()


async def test_requests_are_signed_with_the_token_that_the_kubelet_replaced(
    tmp_path: Path, signed: tuple[dict[str, str], list[str | None]], caplog: pytest.LogCaptureFixture
) -> None:
    environment, seen = signed
    token = tmp_path / "token"
    token.write_text("first\n")
    clock = Clock()
    connection = Connection(ServiceAccount(environment, clock, tmp_path))
    await ask(connection)
    token.write_text("second\n")
    await ask(connection)
    clock.pass_by(60)
    await ask(connection)
    # What cannot be read leaves the token that there is.
    token.write_text("")
    clock.pass_by(60)
    await ask(connection)
    token.write_text("third\n")
    clock.pass_by(60)
    await ask(connection)
    await connection.close()
    assert seen == ["Bearer first", "Bearer first", "Bearer second", "Bearer second", "Bearer third"]
    assert [record.getMessage() for record in caplog.records] == [
        f"the token cannot be read again: {token} is empty",
    ]


async def test_a_server_that_nobody_vouches_for_is_sent_nothing(
    tmp_path: Path, folder: Path, signed: tuple[dict[str, str], list[str | None]]
) -> None:
    environment, seen = signed
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other")
    other.rename(folder / "ca.crt")
    connection = Connection(ServiceAccount(environment, Clock(), folder))
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await ask(connection)
    await connection.close()
    assert seen == []


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_the_address_is_that_of_either_family(folder: Path, host: str, server: str) -> None:
    assert ServiceAccount({**IN_A_POD, "KUBERNETES_SERVICE_HOST": host}, Clock(), folder).server == server


@pytest.mark.parametrize(
    ("environment", "damage", "said"),
    [
        ({}, {}, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set"),
        ({**IN_A_POD, "KUBERNETES_SERVICE_PORT": ""}, {}, "are not both set"),
        (IN_A_POD, {"token": None}, "No such file or directory"),
        (IN_A_POD, {"token": " \n"}, "token is empty"),
        (IN_A_POD, {"token": "tökén"}, "the service account of this pod cannot be read"),
        (IN_A_POD, {"ca.crt": None}, "No such file or directory"),
        (IN_A_POD, {"ca.crt": "not one"}, "ca.crt is not a certificate"),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    folder: Path, environment: dict[str, str], damage: dict[str, str | None], said: str
) -> None:
    for name, content in damage.items():
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(NoClusterError, match=said):
        ServiceAccount(environment, Clock(), folder)


def test_the_namespace_of_the_pod_is_that_of_its_service_account(tmp_path: Path) -> None:
    assert namespace_of_pod(tmp_path) is None, "outside of a pod"
    (tmp_path / "namespace").write_text("ddpjob-system\n")
    assert namespace_of_pod(tmp_path) == "ddpjob-system"
