"""Metrics for autoscalers, served to a real API server as an adapter in a cluster serves them."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tests.apiserver.controlplane import Client, Json, path_of, wait_for
from tests.certificates import self_signed

_EXTERNAL: Final = "external.metrics.k8s.io/v1beta1"
_CUSTOM: Final = "custom.metrics.k8s.io/v1beta2"
_GROUPS: Final = (_EXTERNAL, _CUSTOM)
_SERVICE: Final = {"name": "metrics", "namespace": "default"}


@dataclass
class Metrics:
    """What the server answers; what it has no value for is not found, as where nothing is scraped."""

    external: dict[str, int] = field(default_factory=dict)
    """Of no object, by the metric's name."""
    of_jobs: dict[tuple[str, str], int] = field(default_factory=dict)
    """By the job's name and the metric's."""
    of_pods: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the metric's name, then the pod's."""

    def answer(self, path: str) -> Json | None:
        """The API's answer to a GET, or None if there is nothing."""
        match path.strip("/").split("/"):
            case ["apis", group, version] if f"{group}/{version}" in _GROUPS:
                return {"kind": "APIResourceList", "groupVersion": f"{group}/{version}", "resources": []}
            case ["apis", "external.metrics.k8s.io", _, "namespaces", _, metric] if metric in self.external:
                return _values("ExternalMetricValueList", _EXTERNAL, [_value(self.external[metric], metricName=metric)])
            case ["apis", "custom.metrics.k8s.io", _, "namespaces", _, "pods", "*", metric] if metric in self.of_pods:
                pods = self.of_pods[metric].items()
                return _values("MetricValueList", _CUSTOM, [_of("Pod", name, metric, value) for name, value in pods])
            case ["apis", "custom.metrics.k8s.io", _, "namespaces", _, "ddpjobs.ddpjob.dev", job, metric]:
                value = self.of_jobs.get((job, metric))
                if value is not None:
                    return _values("MetricValueList", _CUSTOM, [_of("DDPJob", job, metric, value)])
        return None


def _values(kind: str, version: str, items: list[Json]) -> Json:
    return {"kind": kind, "apiVersion": version, "metadata": {}, "items": items}


def _value(value: int, **more: object) -> Json:
    return {"timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "value": str(value), **more}


def _of(kind: str, name: str, metric: str, value: int) -> Json:
    return _value(value, describedObject={"kind": kind, "name": name}, metric={"name": metric})


@contextlib.contextmanager
def served_metrics(admin: Client, folder: Path) -> Iterator[Metrics]:
    """Metrics that the API server has the APIs of, until the block ends."""
    metrics = Metrics()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = metrics.answer(unquote(urlsplit(self.path).path))
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if answer is None else answer).encode()
            self.send_response(HTTPStatus.NOT_FOUND if answer is None else HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    certificate, context = self_signed(folder, f"{_SERVICE['name']}.{_SERVICE['namespace']}.svc")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = _registered(server.server_port, base64.b64encode(certificate.read_bytes()).decode())
    try:
        for manifest in made:
            admin.create(manifest)
        for path in map(path_of, made[1:]):
            wait_for(partial(_is_available, admin, path), "the metrics' API to be served")
        yield metrics
    finally:
        # An API whose server is gone would keep namespaces from being deleted.
        for manifest in made:
            admin.delete(path_of(manifest))
        server.shutdown()
        server.server_close()


def _registered(port: int, certificates: str) -> list[Json]:
    """A service, which leads to this machine, and the APIs that it serves."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _SERVICE,
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
    }
    apis = [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "service": {**_SERVICE, "port": port},
                "caBundle": certificates,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }
        for group, version in (name.split("/") for name in _GROUPS)
    ]
    return [service, *apis]


def _is_available(admin: Client, path: str) -> bool:
    conditions = admin.get(path).get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
