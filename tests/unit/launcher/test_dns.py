"""Whether node 0's name exists is asked without teaching the name server that it does not."""

import importlib.util
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddpjob_launcher as package

NAME = "digits-a0-0.digits.ml.svc.cluster.local."
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


class Server:
    """A name server on loopback: it keeps what it was asked, and answers what it is told to."""

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


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, server: Server) -> ModuleType:
    spec = importlib.util.spec_from_file_location("launcher_and_dns", Path(package.__file__).parent / "launcher.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    resolver = "# ours\nsearch ml.svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n"
    monkeypatch.setitem(vars(module), "open", lambda _: io.StringIO(resolver))
    monkeypatch.setattr(module, "DNS_PORT", server.port)
    return module


def _look_ups(monkeypatch: pytest.MonkeyPatch, launcher: ModuleType) -> list[str]:
    """What is looked up the usual way, which then succeeds."""
    names: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return real(host, *args, **kwargs)
        names.append(host)
        return []

    monkeypatch.setattr(launcher.socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.mark.parametrize(
    ("code", "exists"), [(NOERROR, True), (NXDOMAIN, False), (SERVFAIL, None), (REFUSED, None), (4, None)]
)
def test_the_response_code_tells_whether_a_name_exists(
    launcher: ModuleType, server: Server, code: int, *, exists: bool | None
) -> None:
    server.answer = lambda query: response(query, code)
    assert launcher.name_exists(NAME) is exists


def test_no_type_of_record_is_asked_for_that_a_program_would_ask_for(launcher: ModuleType, server: Server) -> None:
    for _ in range(20):
        launcher.name_exists(NAME)
    names, kinds, classes = zip(*server.questions, strict=True)
    assert set(names) == {NAME}
    assert set(classes) == {1}
    # Reserved or for private use, none of them given to anything.
    assert all(61440 <= kind <= 65534 for kind in kinds)
    assert len(set(kinds)) > 10


def test_a_name_is_not_looked_up_before_it_exists(
    launcher: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = _look_ups(monkeypatch, launcher)
    before: list[int] = []

    def answer(query: bytes) -> bytes:
        before.append(len(looked_up))
        return response(query, NOERROR if len(server.questions) > 3 else NXDOMAIN)

    server.answer = answer
    launcher.await_rank_zero(NAME, 29500, 60, connect=False)
    assert before == [0, 0, 0, 0]
    assert looked_up == [NAME]


@pytest.mark.parametrize("code", [SERVFAIL, REFUSED])
def test_a_server_that_cannot_tell_is_not_relied_on(
    launcher: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    looked_up = _look_ups(monkeypatch, launcher)
    server.answer = lambda query: response(query, code)
    launcher.await_rank_zero(NAME, 29500, 60, connect=False)
    assert looked_up == [NAME]


def test_a_server_that_denies_strange_types_delays_and_does_not_prevent_the_start(
    launcher: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_up = _look_ups(monkeypatch, launcher)
    now = [0.0]
    monkeypatch.setattr(launcher.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(launcher.time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    server.answer = lambda query: response(query, NXDOMAIN)
    launcher.await_rank_zero(NAME, 29500, 600, connect=False)
    assert 60 <= now[0] < 62
    assert looked_up == [NAME]
    assert f"waiting for node 0 for 2 s: {NAME} does not exist yet\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["digits-a0-0.digits", "10.0.0.7"])
def test_a_name_that_is_not_absolute_is_the_resolver_s_business(
    launcher: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(launcher.socket, "getaddrinfo", lambda *_, **__: [])
    launcher.await_rank_zero(name, 29500, 60, connect=False)
    assert server.questions == []


def test_without_a_server_nothing_is_known(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setattr(launcher, "DNS_PORT", port)
    assert launcher.name_exists(NAME) is None
    monkeypatch.setitem(vars(launcher), "open", lambda _: io.StringIO("nameserver\nnameserver not-an-address\n"))
    assert launcher.name_exists(NAME) is None


@given(answer=st.binary(max_size=40), ours=st.booleans(), name=st.text(max_size=70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_a_malformed_answer_says_nothing(
    launcher: ModuleType, server: Server, answer: bytes, name: str, *, ours: bool
) -> None:
    # An empty packet ends the server.
    server.answer = lambda query: (query[:2] if ours else b"\0") + answer
    assert launcher.name_exists(NAME) is None
    assert launcher.name_exists(name) is None


@pytest.mark.parametrize(
    "answer",
    [
        lambda query: response(bytes([query[0] ^ 1]) + query[1:], NXDOMAIN),
        lambda query: query[:3] + bytes([NXDOMAIN]) + query[4:],
        lambda query: response(query.replace(b"digits", b"others"), NXDOMAIN),
    ],
    ids=["another number", "no response", "another question"],
)
def test_the_answer_to_another_question_says_nothing(
    launcher: ModuleType, server: Server, answer: Callable[[bytes], bytes]
) -> None:
    server.answer = answer
    assert launcher.name_exists(NAME) is None
