"""The benchmark: python -m hack.bench.requests [--requests 2000] [--rounds 7].

The operator's own client creates pods at a server of this machine, in a window as it has, and nothing else runs in its
process. The server is another process, without TLS: what is measured is the way of a request through the client.
"""

import argparse
import os
import ssl
from collections.abc import Mapping
from statistics import median
from typing import Final

import uvloop

from ddpjob_core.api.resources import PODS
from ddpjob_core.engine.window import in_window
from ddpjob_operator.connection import Connection
from ddpjob_operator.kube import KubeClient
from hack.bench.requests.server import pod, serve
from hack.bench.serving import served

_SENT: Final = 3000
"""Bytes of a pod as the operator sends it."""


class _Plain:
    """Credentials for a server that asks for none."""

    server_name: str | None = None
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None

    def __init__(self, port: int) -> None:
        self.server = f"http://127.0.0.1:{port}"
        self.ssl_context = ssl.create_default_context()

    async def signature(self, _: str) -> Mapping[str, str]:
        return {"Authorization": "Bearer token"}

    async def close(self) -> None:
        pass


async def measure(port: int, requests: int, rounds: int) -> list[float]:
    """Processor seconds of a request, in each round."""
    connection = Connection(_Plain(port))
    kube = KubeClient(connection, count=lambda _, __, ___: None)
    manifest = pod("digits-a0-000", _SENT)

    async def create(_: int) -> None:
        await kube.create(PODS, manifest, strict=True)

    found = []
    for _ in range(rounds):
        before = _used()
        await in_window(range(requests), create, first=1)
        found.append((_used() - before) / requests)
    await connection.close()
    return found


def _used() -> float:
    times = os.times()
    return times.user + times.system


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000, help="of a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with served(serve) as port:
        found = uvloop.run(measure(port, arguments.requests, arguments.rounds))
    print(f"a created pod: {1000 * min(found):.3f} ms of a core at least, {1000 * median(found):.3f} ms in the median")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
