"""Helm and kustomize as a user runs them, and the objects that they make."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from tests.apiserver.controlplane import NAMESPACE, ROOT, Json

CHART: Final = ROOT / "manifests/chart/ddpjob"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/ddpjob-operator"
# What tells the releases of a cluster apart, and what a kept definition has. Manifests have no use for them.
_OF_THE_CHART: Final = ("app.kubernetes.io/instance", "helm.sh/chart", "helm.sh/resource-policy")

_POLICY: Final = "ValidatingAdmissionPolicy"
"""What the names of the kinds of a policy begin with."""

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class HelmError(Exception):
    """Helm refused; the message is its own."""


@dataclass(frozen=True)
class Helm:
    """One of the two programs.

    Attributes:
        program: the program.
        home: what it writes of its own.
        kubeconfig: the cluster, where one is used.
    """

    program: Path
    home: Path
    kubeconfig: Path | None = None

    @property
    def major(self) -> int:
        return int(self.program.name.removeprefix("helm"))

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """What it prints.

        Args:
            arguments: of the program.
            values: of the chart.

        Raises:
            HelmError: it failed.
        """
        places = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        # Its own cache: what another server on the same port once offered must not be believed.
        places["KUBECACHEDIR"] = str(self.home / "kubernetes")
        environment = {**os.environ, **places, "KUBECONFIG": str(self.kubeconfig or os.devnull)}
        command = [str(self.program), *arguments, *(() if values is None else ("--values", "-"))]
        done = subprocess.run(
            command,
            input=json.dumps(values or {}),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout

    def render(self, values: Mapping[str, Any], release: str = "ddpjob", namespace: str = NAMESPACE) -> list[Json]:
        """The objects of a release that is not installed."""
        text = self.run("template", release, str(CHART), "--namespace", namespace, values=values)
        return loaded(text)


def loaded(text: str) -> list[Json]:
    """The objects in a text, read by libyaml where it is there: a tenth of the time, with the definition in it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, Loader=loader) if each]


def kustomized(kubectl: Path, folder: str) -> list[Json]:
    """The objects that kustomize builds of a folder of manifests/."""
    command = [str(kubectl), "kustomize", str(ROOT / "manifests" / folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    built: list[Json] = loaded(text)
    for each in built:
        if each["kind"].startswith(_POLICY):
            # Kustomize does not know that these kinds have none; kubectl does, and leaves it out.
            each["metadata"].pop("namespace", None)
    return built


def by_name(objects: Iterable[Json]) -> dict[Key, Json]:
    """Objects under what tells them apart.

    Raises:
        AssertionError: one of them is there twice.
    """
    listed = list(objects)
    found = {key_of(each): each for each in listed}
    assert len(found) == len(listed)
    return found


def key_of(manifest: Json) -> Key:
    """What tells an object apart from the others."""
    return manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def comparable(objects: Iterable[Json]) -> dict[Key, Json]:
    """Objects without what only a chart's have, and without what only the writer of the YAML decides on."""
    made = by_name(_without_own(each) for each in objects)
    # Kustomize doubles line breaks within an expression.
    return {key: _on_one_line(each) if key[0].startswith(_POLICY) else each for key, each in made.items()}


def _without_own(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_own(each) for each in value]
    if isinstance(value, dict):
        kept = {name: _without_own(each) for name, each in value.items() if name not in _OF_THE_CHART}
        if value.get("annotations") and not kept["annotations"]:
            del kept["annotations"]
        return kept
    return value


def _on_one_line(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_one_line(each) for each in value]
    if isinstance(value, dict):
        return {name: _on_one_line(each) for name, each in value.items()}
    return " ".join(value.split()) if isinstance(value, str) else value
