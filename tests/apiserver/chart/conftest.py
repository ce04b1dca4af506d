"""Both versions of Helm, and a cluster on which nothing is installed."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apiserver.chart.helm import DEPLOYMENT, Helm
from tests.apiserver.controlplane import Client, ControlPlane, path_of


@pytest.fixture(scope="session")
def helm_programs() -> dict[str, Path]:
    """The programs that there are, by name."""
    programs = [Path(program) for program in os.environ.get("DDPJOB_HELM", "").split(os.pathsep) if program]
    return {program.name: program for program in programs}


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, helm_programs: dict[str, Path], tmp_path: Path) -> Helm:
    program = helm_programs.get(request.param)
    if program is None:
        pytest.skip(f"DDPJOB_HELM does not name a {request.param}: make test builds helm4, make test-full both")
    return Helm(program, tmp_path / "helm")


@pytest.fixture(scope="module")
def bare_cluster(breakable_control_planes: Callable[[], ControlPlane]) -> Iterator[ControlPlane]:
    """A control plane on which nothing of ddpjob is installed, except the operator's namespace."""
    plane = breakable_control_planes()
    plane.uninstall()
    yield plane
    # The tests that come next find it as it was.
    plane.install()


@pytest.fixture
def cluster(bare_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The same, for one test."""
    yield bare_cluster
    bare_cluster.uninstall()
    admin = bare_cluster.admin
    releases = admin.items("/api/v1/secrets", labelSelector="owner=helm")
    for path in (DEPLOYMENT, *(path_of({"apiVersion": "v1", "kind": "Secret", **each}) for each in releases)):
        if admin.find(path):
            admin.delete(path)


@pytest.fixture
def admin(cluster: ControlPlane) -> Client:
    return cluster.admin


@pytest.fixture
def on_cluster(helm: Helm, cluster: ControlPlane) -> Helm:
    # What it caches of this API server serves all tests.
    home = cluster.folder / helm.program.name
    return dataclasses.replace(helm, home=home, kubeconfig=cluster.admin_kubeconfig)
