"""An admission webhook that changes what is created, as a process of its own would."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.engine.protocols import Json
from tests.certificates import self_signed

Change = Callable[[Json], list[Json]]
"""The JSON patch for an object that is to be created."""


@contextlib.asynccontextmanager
async def mutating_webhook(folder: Path, change: Change) -> AsyncIterator[Json]:
    """A webhook that listens; the `clientConfig` by which an API server reaches it."""

    async def review(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        patch = base64.b64encode(json.dumps(change(asked["object"])).encode()).decode()
        answer = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    app = web.Application()
    app.add_routes([web.post("/", review)])
    certificate, context = self_signed(folder)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        bundle = base64.b64encode(certificate.read_bytes()).decode()
        yield {"url": f"https://127.0.0.1:{server.port}/", "caBundle": bundle}
    finally:
        await server.close()
