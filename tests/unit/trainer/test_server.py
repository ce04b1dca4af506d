"""The HTTP server inside a training process, against real sockets."""

import http.client
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from ddpjob_trainer.observability.metrics import GpuMemory, ProcessInfo, TrainerMetrics
from ddpjob_trainer.observability.server import HttpServer

INFO = ProcessInfo("digits", 3, 1, 1, 4, 0, 2, "cpu", "gloo", "2.6.0")


def fail() -> tuple[str, bytes]:
    raise RuntimeError("on purpose")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    server = HttpServer(
        0, {"/progress": lambda: ("application/json", b'{"step": 1}'), "/broken": fail}, patience=60, most_clients=4
    )
    server.start()
    yield server
    server.close()


def ask(port: int, method: str, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def send(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := client.recv(4096):
            received += chunk
        return received


def cut_off(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def answered(port: int) -> bool:
    try:
        return send(port, b"GET /none HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")
    except OSError:
        return False


def test_a_page_is_served_with_its_type_and_length(server: HttpServer) -> None:
    status, headers, body = ask(server.port, "GET", "/progress?pretty=1")
    assert (status, body) == (200, b'{"step": 1}')
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == "11"
    assert "content-encoding" not in headers


def test_head_tells_the_same_headers_without_the_body(server: HttpServer) -> None:
    _, expected, _ = ask(server.port, "GET", "/progress")
    assert ask(server.port, "HEAD", "/progress") == (200, expected, b"")


def test_ipv4_and_ipv6_are_answered_on_one_port(server: HttpServer) -> None:
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    assert [ask(server.port, "GET", "/progress", host)[0] for host in hosts] == [200] * len(hosts)


def test_another_page_is_not_found_and_another_method_not_allowed(server: HttpServer) -> None:
    assert ask(server.port, "GET", "/")[0] == 404
    assert ask(server.port, "HEAD", "/") == (404, ask(server.port, "GET", "/")[1], b"")
    status, headers, _ = ask(server.port, "POST", "/progress")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /progress\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET /progress HTTP/1.1\r\nHost: half", b"400"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
def test_what_is_not_a_request_is_refused(server: HttpServer, request_bytes: bytes, status: bytes) -> None:
    try:
        answer = send(server.port, request_bytes)
    except OSError:
        # The server need not read a request to its end to refuse it.
        answer = b""
    assert not answer or answer.split(b" ")[1] == status
    assert ask(server.port, "GET", "/progress")[0] == 200


def test_a_page_that_cannot_be_made_does_not_end_the_server(server: HttpServer) -> None:
    assert ask(server.port, "GET", "/broken")[0] == 500
    assert ask(server.port, "GET", "/progress")[0] == 200


def test_clients_beyond_the_bound_are_turned_away_and_served_again_when_others_leave(server: HttpServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(4)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as fifth:
        assert cut_off(fifth)
    for client in silent:
        client.sendall(b"GET /progress HTTP/1.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        client.close()
    assert ask(server.port, "GET", "/progress")[0] == 200


def test_a_silent_client_is_cut_off() -> None:
    server = HttpServer(0, {}, patience=0.05)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            assert cut_off(client)
    finally:
        server.close()


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    server = HttpServer(0, {"/": lambda: ("text/plain", bytes(64 * 1024 * 1024))}, patience=0.2, most_clients=1)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b"H"
            # The others are turned away while it holds the only place, and answered once it is cut off.
            while not answered(server.port):
                pass
    finally:
        server.close()


def test_a_port_in_use_is_an_error_at_once(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(server.port, {})


def test_metrics_have_the_jobs_name_and_the_rank_on_every_series() -> None:
    metrics = TrainerMetrics(INFO)
    metrics.steps.add(7, 1e9, samples=32, data_seconds=0.5, seconds=0.02)
    kind, text = metrics.render()
    assert kind.startswith("text/plain")
    lines = text.decode().splitlines()
    series = [line for line in lines if line.startswith("ddpjob_trainer_")]
    assert all('ddpjob="digits"' in line and 'rank="3"' in line for line in series)
    assert 'ddpjob_trainer_steps_total{ddpjob="digits",rank="3"} 1.0' in series
    assert 'ddpjob_trainer_world_size{ddpjob="digits",rank="3"} 4.0' in series
    assert 'ddpjob_trainer_process_restarts{ddpjob="digits",rank="3"} 2.0' in series
    assert 'ddpjob_trainer_step_duration_seconds_bucket{ddpjob="digits",le="0.025",rank="3"} 1.0' in series
    info = next(line for line in series if line.startswith("ddpjob_trainer_process_info"))
    assert 'local_rank="1"' in info
    assert 'torch_version="2.6.0"' in info
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert not any('job="' in line.replace("ddpjob=", "") for line in lines)


def test_memory_of_a_gpu_is_read_at_the_scrape_and_only_where_there_is_one() -> None:
    assert "gpu_memory" not in TrainerMetrics(INFO).render()[1].decode()
    held = 1024.0
    metrics = TrainerMetrics(INFO, GpuMemory(allocated=lambda: held, reserved=lambda: 4096.0, total=8192.0))
    held = 2048.0
    text = metrics.render()[1].decode()
    labels = '{ddpjob="digits",rank="3"}'
    assert f"ddpjob_trainer_gpu_memory_allocated_bytes{labels} 2048.0" in text
    assert f"ddpjob_trainer_gpu_memory_reserved_bytes{labels} 4096.0" in text
    assert f"ddpjob_trainer_gpu_memory_total_bytes{labels} 8192.0" in text


@given(st.lists(st.floats(0, 400) | st.sampled_from([0.001, 0.025, 1.0, 300.0])))
def test_durations_of_steps_are_counted_as_the_client_librarys_own_histogram_counts_them(seconds: list[float]) -> None:
    metrics = TrainerMetrics(INFO)
    registry = CollectorRegistry()
    bounds = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
    name = "ddpjob_trainer_step_duration_seconds"
    expected = Histogram(name, "", ("ddpjob", "rank"), registry=registry, buckets=bounds).labels("digits", "3")
    for each in seconds:
        metrics.steps.add(1, 0.0, samples=1, data_seconds=0.0, seconds=each)
        expected.observe(each)

    def series(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(f"{name}_") and "_created" not in line]

    assert series(metrics.render()[1].decode()) == series(generate_latest(registry).decode())
