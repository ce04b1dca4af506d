"""`ddpjob` as a test runs it, and the jobs that it is given."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from ddpjob.cli.app import app
from tests.apiserver.controlplane import Client

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "manifests/examples/digits.yaml"
SCRIPTED = ROOT / "manifests/examples/script.yaml"
JOB = """\
apiVersion: ddpjob.dev/v1alpha1
kind: DDPJob
metadata:
  name: {name}
spec:
  nodes: 2
  procsPerNode: 1
  trainer:
    image: i
    script: train.py
  {more}
"""


class Program:
    """`ddpjob` in a namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._options = ["--kubeconfig", str(kubeconfig), "-n", namespace]

    def __call__(self, command: str, *arguments: str) -> Result:
        """Run a command; whatever it does, it shows no traceback and raises nothing of its own."""
        done = CliRunner().invoke(app, [command, *self._options, *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Traceback (most" not in done.stderr
        return done

    def json(self, command: str, *arguments: str) -> Any:
        """Its answer with -o json."""
        done = self(command, "-o", "json", *arguments)
        return json.loads(done.stdout)


def config_maps(admin: Client, namespace: str) -> dict[str, Any]:
    found = admin.items(f"/api/v1/namespaces/{namespace}/configmaps")
    return {each["metadata"]["name"]: each for each in found if not each["metadata"]["name"].startswith("kube-root")}


def jobs(admin: Client, namespace: str) -> list[str]:
    return [
        each["metadata"]["name"] for each in admin.items(f"/apis/ddpjob.dev/v1alpha1/namespaces/{namespace}/ddpjobs")
    ]
