"""One control plane for the whole run, and a namespace for each test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apiserver.controlplane import Client, ControlPlane


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder with Kubernetes' programs."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver: `make test` builds them")
    return Path(folder)


@pytest.fixture(scope="session")
def control_plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and the garbage collector, shared by all tests that do not break it."""
    plane = ControlPlane.start(assets, tmp_path_factory.mktemp("control-plane"), controllers=True)
    yield plane
    plane.stop()


@pytest.fixture
def own_control_plane(assets: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """One with nothing of another test in it."""
    plane = ControlPlane.start(assets, tmp_path / "control-plane")
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def breakable_control_planes(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], ControlPlane]]:
    """The control plane that tests break, made again after one that did not leave it well."""
    planes: list[ControlPlane] = []

    def well() -> ControlPlane:
        if not planes or not planes[-1].is_well():
            planes.append(ControlPlane.start(assets, tmp_path_factory.mktemp("breakable-control-plane")))
        return planes[-1]

    yield well
    for plane in planes:
        plane.stop()


@pytest.fixture
def breakable_control_plane(breakable_control_planes: Callable[[], ControlPlane]) -> ControlPlane:
    """One that a test may pause, kill and start again, and leaves running."""
    return breakable_control_planes()


@pytest.fixture
def admin(control_plane: ControlPlane) -> Client:
    return control_plane.admin


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    return control_plane.new_namespace()
