"""A server that answers each POST with a pod, in a process of its own."""

import asyncio
import json
from multiprocessing.connection import Connection
from typing import Any, Final

_BYTES: Final = 5400
"""Of a pod as the API server answers it."""


def pod(name: str, size: int) -> dict[str, Any]:
    """A pod of about so many bytes."""
    metadata = {"name": name, "namespace": "team", "uid": "u", "resourceVersion": "1", "labels": {"job": "digits"}}
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
    size -= len(json.dumps(found))
    found["spec"] = {"env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(size // 78)]}
    return found


def serve(ready: Connection) -> None:
    """Answer at a port of loopback; sends it when it can be asked."""
    asyncio.run(_serve(ready))


async def _serve(ready: Connection) -> None:
    body = json.dumps(pod("digits-a0-000", _BYTES)).encode()
    # As Go writes what does not fit into its buffer.
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    answer = b"HTTP/1.1 201 Created\r\nAudit-Id: 0\r\nContent-Type: application/json\r\n" + chunked

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            lines = head.decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            await reader.readexactly(int(length.partition(":")[2]))
            writer.write(answer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
