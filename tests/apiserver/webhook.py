"""An admission webhook that changes what is created, as a process of its own would."""

import base64
import contextlib
import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ddpjob_core.engine.protocols import Json

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
    certificate = _certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, folder / "webhook.key")
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        bundle = base64.b64encode(certificate.read_bytes()).decode()
        yield {"url": f"https://127.0.0.1:{server.port}/", "caBundle": bundle}
    finally:
        await server.close()


def _certificate(folder: Path) -> Path:
    """A certificate for this machine that signs itself, and its key in a file of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook of the test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "webhook.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    path = folder / "webhook.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path
