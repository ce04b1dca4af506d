"""The interface of the default route."""

import os
from pathlib import Path

import pytest

from ddpjob_launcher.interface import default_interface, set_gloo_interface

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def ipv4(name: str, *, metric: int = 0, flags: str = "0003", to: str = "0" * 8, mask: str = "0" * 8) -> str:
    return f"{name}\t{to}\t010200C0\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"


def ipv6(
    name: str, *, metric: str = "00000400", flags: str = "00000003", to: str = "0" * 32, length: str = "00"
) -> str:
    return f"{to} {length} {'0' * 32} 00 {'f' * 32} {metric} 00000001 00000000 {flags} {name}\n"


REJECTS = ipv6("lo", metric="ffffffff", flags="00200200")


@pytest.mark.parametrize(
    ("four", "six", "interface"),
    [
        ("", "", None),
        ("nonsense\n", "00 00\n", None),
        (HEAD, REJECTS, None),
        (HEAD + ipv4("eth0", to="0002A8C0", mask="00FFFFFF"), REJECTS, None),
        (HEAD + ipv4("eth0", mask="00000080"), REJECTS, None),
        (HEAD + ipv4("docker0", to="000011AC", mask="0000FFFF") + ipv4("eth0"), REJECTS, "eth0"),
        (HEAD + ipv4("wlan0", metric=600) + ipv4("ib0", metric=100), "", "ib0"),
        (HEAD + ipv4("down0", flags="0002") + ipv4("eth1", metric=9), "", "eth1"),
        (HEAD + ipv4("no0", flags="0201") + ipv4("eth1", metric=9), "", "eth1"),
        (HEAD, ipv6("eth0", to="fd" + "0" * 30, length="40") + ipv6("eth1") + REJECTS, "eth1"),
        (HEAD, ipv6("eth1", metric="00000401") + ipv6("eth2", metric="00000064"), "eth2"),
        (HEAD + ipv4("eth0", metric=2000), ipv6("eth1"), "eth0"),
    ],
)
def test_the_interface_of_the_default_route_is_found(four: str, six: str, interface: str | None) -> None:
    assert default_interface(four, six) == interface


def test_gloo_gets_the_interface_of_this_machine_unless_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = default_interface(Path("/proc/net/route").read_text(), Path("/proc/net/ipv6_route").read_text())
    monkeypatch.setattr(os, "environ", {})
    set_gloo_interface()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == expected
    os.environ["GLOO_SOCKET_IFNAME"] = "mine"
    set_gloo_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"
