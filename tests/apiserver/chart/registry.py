"""As much of a registry of OCI artifacts as Helm and container engines need to push to it and to pull from it."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit


@dataclass
class Registry:
    """What was pushed.

    Attributes:
        host: where it listens.
        blobs: contents under their digests.
        manifests: type and content of each manifest, under repository and tag, and under repository and digest.
        token: what it wants to see, and gives to everyone who asks for it at /token; "" wants none.
        asked: the queries of requests for tokens.
    """

    host: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    token: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)

    def put_manifest(self, repository: str, tag: str, content_type: str, content: bytes) -> str:
        """Have a tag point to a manifest; its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.manifests[repository, tag] = self.manifests[repository, digest] = content_type, content
        return digest


@contextmanager
def serving(token: str = "") -> Iterator[Registry]:
    """A registry on loopback, without TLS and accounts.

    Args:
        token: what it wants to see; "" wants none.
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    registry = _Handler.registry = Registry(f"127.0.0.1:{server.server_port}", token=token)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Paths are /v2/REPOSITORY/(blobs|manifests)/REFERENCE."""

    protocol_version = "HTTP/1.1"
    registry: Registry

    def do_HEAD(self) -> None:
        self._send_stored(with_body=False)

    def do_GET(self) -> None:
        self._send_stored(with_body=True)

    def do_POST(self) -> None:
        self._read()
        self._answer(HTTPStatus.ACCEPTED, {"Location": f"{self.path}upload"})

    def do_PUT(self) -> None:
        content, address = self._read(), urlsplit(self.path)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        repository, kind, reference = self._parts()
        if kind == "manifests":
            self.registry.put_manifest(repository, reference, self.headers["Content-Type"], content)
        else:
            assert parse_qs(address.query)["digest"] == [digest]
            self.registry.blobs[digest] = content
        self._answer(HTTPStatus.CREATED, {"Location": address.path, "Docker-Content-Digest": digest})

    def _send_stored(self, *, with_body: bool) -> None:
        address = urlsplit(self.path)
        if address.path == "/token":
            self.registry.asked.append(parse_qs(address.query))
            answer = json.dumps({"token": self.registry.token}).encode()
            self._answer(HTTPStatus.OK, {"Content-Type": "application/json"}, answer)
            return
        if self.registry.token and self.headers["Authorization"] != f"Bearer {self.registry.token}":
            # Docker Hub asks so; the scope is that of the image.
            scope = f"repository:{self._parts()[0]}:pull"
            realm = f"http://{self.registry.host}/token"
            challenge = f'Bearer realm="{realm}",service="registry.example",scope="{scope}"'
            self._answer(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": challenge})
            return
        if address.path == "/v2/":
            self._answer(HTTPStatus.OK, {})
            return
        repository, kind, reference = self._parts()
        if kind == "manifests":
            content_type, content = self.registry.manifests.get((repository, reference), ("", b""))
        else:
            content_type, content = "application/octet-stream", self.registry.blobs.get(reference, b"")
        if not content:
            self._answer(HTTPStatus.NOT_FOUND, {})
            return
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._answer(
            HTTPStatus.OK, {"Content-Type": content_type, "Docker-Content-Digest": digest}, content, with_body=with_body
        )

    def _parts(self) -> tuple[str, str, str]:
        path = urlsplit(self.path).path.removeprefix("/v2/")
        kind = "manifests" if "/manifests/" in path else "blobs"
        repository, _, reference = path.partition(f"/{kind}/")
        return repository, kind, reference

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _answer(
        self, code: HTTPStatus, headers: dict[str, str], content: bytes = b"", *, with_body: bool = True
    ) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 its name in the base class
        """Say nothing of what goes well."""
