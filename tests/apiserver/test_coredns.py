"""The launcher and the real CoreDNS with a cache: a name that is asked for too early stays absent for a while."""

import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ddpjob_launcher import dns
from tests.apiserver.controlplane import Client, ControlPlane, wait_for
from tests.ports import free_port

COREFILE: Final = """
cluster.local:{port} {{
    bind 127.0.0.1
    kubernetes cluster.local {{
        kubeconfig {kubeconfig} tests
        ttl 30
    }}
    cache 30
}}
"""
NXDOMAIN: Final = 3
POD: Final = "digits-a0-0"
ASKED_TOO_EARLY: Final = "digits-a0-1"


@dataclass(frozen=True)
class NameServer:
    """CoreDNS on loopback."""

    port: int

    def address(self, name: str) -> tuple[int, bytes]:
        """Response code, and the address that a resolver would be given."""
        labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
        query = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.settimeout(1)
            asked.sendto(query, ("127.0.0.1", self.port))
            answer = asked.recv(4096)
        code = answer[3] & 0x0F
        return code, answer[-4:] if not code else b""


@pytest.fixture
def name_server(assets: Path, control_plane: ControlPlane, tmp_path: Path) -> Iterator[NameServer]:
    program = assets / "coredns"
    if not program.exists():
        pytest.skip("the folder of programs has no coredns: it is built where the node image is")
    server = NameServer(free_port())
    corefile = tmp_path / "Corefile"
    corefile.write_text(COREFILE.format(port=server.port, kubeconfig=control_plane.admin_kubeconfig))
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "-conf", corefile], stdout=output, stderr=subprocess.STDOUT)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return server.address("kubernetes.default.svc.cluster.local.")[0] == 0
        except OSError:
            return False

    try:
        wait_for(answers, "CoreDNS")
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch, name_server: NameServer) -> None:
    monkeypatch.setattr(dns, "DNS_PORT", name_server.port)
    monkeypatch.setattr(dns, "_name_servers", lambda: ["127.0.0.1"])


def _publish(admin: Client, namespace: str) -> None:
    """What the operator's service and its pods come to."""
    metadata = {"name": "digits", "namespace": namespace}
    admin.create(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "digits"}},
            "addressType": "IPv4",
            "ports": [{"name": "rendezvous", "port": 29500}],
            "endpoints": [
                {"addresses": [f"10.9.8.{number}"], "hostname": pod, "conditions": {"ready": True}}
                for number, pod in enumerate([POD, ASKED_TOO_EARLY])
            ],
        }
    )


def test_a_name_is_found_as_soon_as_it_exists_although_its_absence_was_asked_for(
    name_server: NameServer, admin: Client, namespace: str
) -> None:
    suffix = f"digits.{namespace}.svc.cluster.local."
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [{"name": "rendezvous", "port": 29500}]}
    metadata = {"name": "digits", "namespace": namespace}
    admin.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    assert [dns.name_exists(f"{POD}.{suffix}") for _ in range(20)] == [False] * 20
    assert name_server.address(f"{ASKED_TOO_EARLY}.{suffix}") == (NXDOMAIN, b"")
    _publish(admin, namespace)
    wait_for(lambda: dns.name_exists(f"{POD}.{suffix}"), "the name")
    assert name_server.address(f"{POD}.{suffix}") == (0, bytes([10, 9, 8, 0]))
    # This is what the cache does: a client that asked in the usual way before still gets no address.
    assert dns.name_exists(f"{ASKED_TOO_EARLY}.{suffix}") is True
    assert name_server.address(f"{ASKED_TOO_EARLY}.{suffix}") == (NXDOMAIN, b"")
