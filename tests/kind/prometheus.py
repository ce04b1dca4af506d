"""A real Prometheus in the cluster, with the configuration and the rules that are committed."""

import json
import math
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import yaml
from kubectl import Kubectl, wait_until

from hack.cache import ROOT

IMAGE = os.environ.get("DDPJOB_PROMETHEUS_IMAGE", "ddpjob-prometheus:dev")
FOLDER = ROOT / "manifests/prometheus"
PORT = 9090
Series = tuple[dict[str, str], list[tuple[float, float]]]


@dataclass(frozen=True)
class Prometheus:
    """Its HTTP API, through the API server."""

    url: str

    def ask(self, path: str, **parameters: str) -> dict[str, Any]:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:  # noqa: S310 our own proxy
            found: dict[str, Any] = json.load(answer)["data"]
        return found

    def range(self, expression: str, since: float, until: float | None = None) -> list[Series]:
        """Series with their finite values, second by second; those that have none are left out."""
        end = until or time.time()
        found = self.ask("query_range", query=expression, start=str(since), end=str(end), step="1")
        series = [
            (each["metric"], [(float(at), float(value)) for at, value in each["values"] if math.isfinite(float(value))])
            for each in found["result"]
        ]
        return [(labels, values) for labels, values in series if values]

    def now(self, expression: str) -> list[dict[str, str]]:
        """Labels of the series that an expression has now."""
        return [each["metric"] for each in self.ask("query", query=expression)["result"]]


@contextmanager
def prometheus_in(kubectl: Kubectl) -> Iterator[Prometheus]:
    """A Prometheus in the namespace, ready; it looks every second, that a test need not wait."""
    access = [_own(each, kubectl.namespace) for each in yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())]
    kubectl.apply(*access, *_objects(kubectl.namespace))
    proxy = subprocess.Popen([kubectl.program, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        kubectl("wait", "--for=condition=Ready", "pod/prometheus", "--timeout=120s", timeout=150)
        assert proxy.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", proxy.stdout.readline())
        assert address is not None
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/prometheus:{PORT}/proxy"
        prometheus = Prometheus(f"http://{address[0]}{path}")
        wait_until(lambda: _scrapes(prometheus), "the operator to be scraped", 60)
        yield prometheus
    finally:
        proxy.terminate()
        proxy.wait()
        for each in access:
            kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


def _scrapes(prometheus: Prometheus) -> bool:
    try:
        return bool(prometheus.now("ddpjob_operator_queue_depth"))
    except urllib.error.HTTPError as error:
        # It reads its files first, and the node may not let anybody connect to a pod that it has just heard of.
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            return False
        raise


def _own(each: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The committed role or binding under a name of this test's own, for the service account of this namespace."""
    name = f"{each['metadata']['name']}-{namespace}"
    each["metadata"]["name"] = name
    if "roleRef" in each:
        each["roleRef"]["name"] = name
        each["subjects"][0]["namespace"] = namespace
    return each


def _objects(namespace: str) -> list[dict[str, Any]]:
    configuration = (FOLDER / "prometheus.yaml").read_text()
    assert configuration.count(": 15s") == len(["scrape_interval", "evaluation_interval"])
    files = {
        "prometheus.yaml": configuration.replace(": 15s", ": 1s"),
        "rules.yaml": (FOLDER / "rules.yaml").read_text(),
    }
    container = {
        "name": "prometheus",
        "image": IMAGE,
        "args": ["--config.file=/etc/prometheus/prometheus.yaml", "--storage.tsdb.path=/data"],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "files", "mountPath": "/etc/prometheus"}, {"name": "data", "mountPath": "/data"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prometheus"}, "data": files},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "prometheus", "namespace": namespace},
            "spec": {
                "serviceAccountName": "prometheus",
                "terminationGracePeriodSeconds": 1,
                "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [container],
                "volumes": [
                    {"name": "files", "configMap": {"name": "prometheus"}},
                    {"name": "data", "emptyDir": {}},
                ],
            },
        },
    ]
