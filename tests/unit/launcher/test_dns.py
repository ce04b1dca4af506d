"""Whether node 0's name exists is asked without teaching the name server that it does not."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpjob_launcher import dns
from ddpjob_launcher.rendezvous import await_node
from tests.unit.launcher.running import files_of, settings_of

NAME = "digits-a0-0.digits.ml.svc.cluster.local."
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


class Server:
    """A name server on loopback: it keeps its questions, and answers as a test says."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, int, int]] = []
        self.answer: Callable[[bytes], bytes | None] = lambda query: response(query, NOERROR)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(4096)
            if not query:
                return
            labels, rest = [], query[12:]
            while rest[0]:
                labels.append(rest[1 : 1 + rest[0]].decode())
                rest = rest[1 + rest[0] :]
            self.questions.append((".".join(labels) + ".", *struct.unpack("!HH", rest[1:5])))
            answer = self.answer(query)
            if answer is not None:
                self._socket.sendto(answer, sender)


def response(query: bytes, code: int) -> bytes:
    return query[:2] + bytes([0x85, 0x80 | code]) + query[4:]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    resolver = "# ours\nsearch ml.svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n"
    files_of(monkeypatch, dns, {"/etc/resolv.conf": resolver})
    monkeypatch.setattr(dns, "DNS_PORT", server.port)


class NoPage:
    def show(self, reason: str, message: str) -> None:
        pass


def _await(name: str, timeout: str) -> None:
    settings = settings_of(DDPJOB_RENDEZVOUS_TIMEOUT=timeout)
    await_node(settings, 0, name, 29500, connect=False, page=NoPage())


def _look_ups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked up the usual way, which then succeeds."""
    names: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return real(host, *args, **kwargs)
        names.append(host)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.mark.parametrize(
    ("code", "exists"), [(NOERROR, True), (NXDOMAIN, False), (SERVFAIL, None), (REFUSED, None), (4, None)]
)
def test_the_response_code_tells_whether_a_name_exists(server: Server, code: int, *, exists: bool | None) -> None:
    server.answer = lambda query: response(query, code)
    assert dns.name_exists(NAME) is exists


def test_no_type_of_record_is_asked_for_that_a_program_would_ask_for(server: Server) -> None:
    for _ in range(20):
        dns.name_exists(NAME)
    names, kinds, classes = zip(*server.questions, strict=True)
    assert set(names) == {NAME}
    assert set(classes) == {1}
    # Reserved or for private use, none of them given to anything.
    assert all(61440 <= kind <= 65534 for kind in kinds)
    assert len(set(kinds)) > 10


def test_a_name_is_not_looked_up_before_it_exists(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = _look_ups(monkeypatch)
    before: list[int] = []

    def answer(query: bytes) -> bytes:
        before.append(len(looked_up))
        return response(query, NOERROR if len(server.questions) > 3 else NXDOMAIN)

    server.answer = answer
    _await(NAME, "60")
    assert before == [0, 0, 0, 0]
    assert looked_up == [NAME]


@pytest.mark.parametrize("code", [SERVFAIL, REFUSED])
def test_a_server_that_cannot_tell_is_not_relied_on(server: Server, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    looked_up = _look_ups(monkeypatch)
    server.answer = lambda query: response(query, code)
    _await(NAME, "60")
    assert looked_up == [NAME]


def test_a_server_that_denies_strange_types_delays_and_does_not_prevent_the_start(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_up = _look_ups(monkeypatch)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    server.answer = lambda query: response(query, NXDOMAIN)
    _await(NAME, "600")
    assert 60 <= now[0] < 62
    assert looked_up == [NAME]
    assert f"waiting for node 0 for 2 s: {NAME} does not exist yet\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["digits-a0-0.digits", "10.0.0.7"])
def test_a_name_that_is_not_absolute_is_the_resolver_s_business(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
    _await(name, "60")
    assert server.questions == []


def test_without_a_server_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setattr(dns, "DNS_PORT", port)
    assert dns.name_exists(NAME) is None
    files_of(monkeypatch, dns, {"/etc/resolv.conf": "nameserver\nnameserver not-an-address\n"})
    assert dns.name_exists(NAME) is None


@given(answer=st.binary(max_size=40), ours=st.booleans(), name=st.text(max_size=70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_a_malformed_answer_says_nothing(server: Server, answer: bytes, name: str, *, ours: bool) -> None:
    # An empty packet ends the server.
    server.answer = lambda query: (query[:2] if ours else b"\0") + answer
    assert dns.name_exists(NAME) is None
    assert dns.name_exists(name) is None


@pytest.mark.parametrize(
    "answer",
    [
        lambda query: response(bytes([query[0] ^ 1]) + query[1:], NXDOMAIN),
        lambda query: query[:3] + bytes([NXDOMAIN]) + query[4:],
        lambda query: response(query.replace(b"digits", b"others"), NXDOMAIN),
    ],
    ids=["another number", "no response", "another question"],
)
def test_the_answer_to_another_question_says_nothing(server: Server, answer: Callable[[bytes], bytes]) -> None:
    server.answer = answer
    assert dns.name_exists(NAME) is None


@pytest.mark.parametrize(
    ("resolver", "name"),
    [
        ("search ml.svc.cluster.local svc.cluster.local lan\noptions ndots:5\n", "a-0.a.ml.svc.cluster.local."),
        ("nameserver 10.96.0.10\nsearch ml.svc.example.org. lan\n", "a-0.a.ml.svc.example.org."),
        ("search lan\n", "a-0.a"),
        (None, "a-0.a"),
    ],
)
def test_names_become_absolute_where_the_cluster_s_domain_is_known(
    monkeypatch: pytest.MonkeyPatch, resolver: str | None, name: str
) -> None:
    files_of(monkeypatch, dns, {} if resolver is None else {"/etc/resolv.conf": resolver})
    assert dns.absolute_name("a-0.a", "ml") == name
    assert dns.absolute_name("", "ml") == ""
