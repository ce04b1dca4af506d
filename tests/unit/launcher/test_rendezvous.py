"""The wait for node 0."""

import errno
import socket
import time

import pytest

from ddpjob_launcher.errors import LaunchError
from ddpjob_launcher.rendezvous import SHOW_AFTER, await_node, endpoint
from tests.unit.launcher.running import settings_of


class NoPage:
    def show(self, reason: str, message: str) -> None:
        pass


class Network:
    """A clock that only sleeping moves, and a node 0 that appears step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, resolves_at: float, answers_at: float) -> None:
        self.now, self.pauses, self.lookups = 0.0, list[float](), list[float]()
        self._resolves_at, self._answers_at = resolves_at, answers_at
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(socket, "create_connection", self._connect)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def _resolve(self, *_: object, **__: object) -> None:
        self.lookups.append(self.now)
        if self.now < self._resolves_at:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def _connect(self, *_: object, **__: object) -> socket.socket:
        if self.now < self._answers_at:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return socket.socket()


def test_a_short_wait_for_node_0_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    network = Network(monkeypatch, 0.5, 1.0)
    await_node(settings_of(), 0, "a-0.svc", 29500, connect=True, page=NoPage())
    assert network.now < 2
    assert network.pauses[:3] == [0.1, 0.2, 0.4]
    assert not capsys.readouterr().err


def test_a_long_wait_says_so_after_2_s_then_every_10(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network(monkeypatch, 15, 25)
    await_node(settings_of(), 0, "a-0.svc", 29500, connect=True, page=NoPage())
    assert 25 <= network.now < 26.1
    assert max(network.pauses) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "a-0.svc does not resolve yet" in lines[0]
    assert "a-0.svc:29500 does not answer yet (Connection refused)" in lines[2]


def test_the_host_of_the_store_waits_for_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, 3, 10**9)
    await_node(settings_of(), 0, "a-0.svc", 29500, connect=False, page=NoPage())
    assert network.now < 4


def test_giving_up_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, 10**9, 10**9)
    settings = settings_of(DDPJOB_RENDEZVOUS_TIMEOUT="30")
    with pytest.raises(LaunchError, match=r"within 30 s: .*job=digits,ddpjob.dev/ordinal=0.*DNS"):
        await_node(settings, 0, "a-0.svc", 29500, connect=True, page=NoPage())
    assert network.now == pytest.approx(30)


def test_a_long_wait_is_shown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[float, str, str]] = []
    network = Network(monkeypatch, 9, 20)

    class Page:
        def show(self, reason: str, message: str) -> None:
            shown.append((network.now, reason, message))

    await_node(settings_of(), 0, "a-0.svc", 29500, connect=True, page=Page())
    assert shown[0][0] >= SHOW_AFTER
    assert [reason for _, reason, _ in shown] == ["NameNotResolved"] * 4 + ["Node0NotReached"] * (len(shown) - 4)
    assert shown[-1][2] == "a-0.svc:29500 does not answer yet (Connection refused)"


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("digits-a0-0.digits.ml.svc.cluster.local.", "digits-a0-0.digits.ml.svc.cluster.local.:29500"),
        ("127.0.0.1", "127.0.0.1:29500"),
        ("fd00::1", "[fd00::1]:29500"),
    ],
)
def test_an_ipv6_address_stands_in_brackets_before_its_port(host: str, text: str) -> None:
    assert endpoint(host, 29500) == text
