"""The interface that gloo uses on a node's own network."""

# ruff: noqa: PTH123 -- files of the kernel

from __future__ import annotations

import contextlib
import os

from .log import say


def set_gloo_interface() -> None:
    """Name the interface of the default route: the host name is the node's, and often that of the loopback."""
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return
    tables = {}
    for name in ("route", "ipv6_route"):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}") as file:
            tables[name] = file.read()
    interface = default_interface(tables.get("route", ""), tables.get("ipv6_route", ""))
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        say(
            f"host network: gloo uses {interface}, the interface of the default route; "
            "set GLOO_SOCKET_IFNAME to use another"
        )


def default_interface(ipv4: str, ipv6: str) -> str | None:
    """The interface of the default route, that of IPv4 first; of several the one with the lowest metric.

    Args:
        ipv4: text of /proc/net/route.
        ipv6: text of /proc/net/ipv6_route.
    """
    found = []
    for line in ipv4.splitlines():
        words = line.split()
        # Interface, destination, gateway, flags, two counters, metric, mask; all hexadecimal except the metric.
        if len(words) > 7 and words[1] == words[7] == "0" * 8:  # noqa: PLR2004
            found.append((4, int(words[6]), int(words[3], 16), words[0]))
    for line in ipv6.splitlines():
        words = line.split()
        # Destination, its prefix length, the same of the source, gateway, metric, two counters, flags, interface.
        if len(words) > 9 and words[0] == "0" * 32 and words[1] == "00":  # noqa: PLR2004
            found.append((6, int(words[5], 16), int(words[8], 16), words[9]))
    # Routes that are up (1) and do not reject (0x200): each table of IPv6 ends with one of the loopback that does.
    usable = [(family, metric, name) for family, metric, flags, name in found if flags & 0x201 == 1 and name != "lo"]
    return min(usable)[2] if usable else None
