"""Nodes that share a machine have ports of their own."""

import socket
from pathlib import Path

import pytest
from local_jobs import NETWORK

from ddpjob.local.network import Ports, node_address


def test_every_node_has_ports_of_its_own_and_addresses_that_sort_as_the_ordinals() -> None:
    assert [NETWORK.node_metrics_port(ordinal) for ordinal in range(3)] == [9401, 9403, 9405]
    assert NETWORK.locate(1, "127.0.0.1", 9402) == ("127.0.0.1", 9404)
    addresses = [node_address(ordinal) for ordinal in range(12)]
    assert sorted(addresses) == addresses
    assert addresses[0] == "127.0.0.1"


def test_ports_in_use_are_passed_over(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        network = ports.network(rendezvous_port=port, metrics_port=port, nodes=2, processes=2)
    assert network.rendezvous_port > port
    assert network.metrics_port > port
    assert not network.metrics_port <= network.rendezvous_port < network.metrics_port + 4
    with pytest.raises(OSError, match="no 9 consecutive free ports"):
        ports.network(rendezvous_port=port, metrics_port=65530, nodes=9, processes=1)


def test_ports_are_held_until_they_are_released(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    asked = {"rendezvous_port": port, "metrics_port": port + 1, "nodes": 1, "processes": 2}
    one, other = Ports(tmp_path), Ports(tmp_path)
    network = one.network(**asked)
    assert one.are_free()
    assert other.network(**asked).rendezvous_port >= network.metrics_port + 2
    one.release()
    other.release()
    assert other.network(**asked) == network
    other.release()


def test_ports_are_not_held_in_another_user_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user: set TMPDIR to another folder"):
        Ports(tmp_path).network(rendezvous_port=29500, metrics_port=9401, nodes=1, processes=1)
