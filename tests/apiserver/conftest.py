"""One control plane for the whole run, and a namespace for each test."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.controlplane import Client, ControlPlane

_SHARED = pytest.StashKey[ControlPlane]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers of pytest share a control plane: starting one, and having it, takes more than most tests."""
    stash = node.config.stash
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return
    if _SHARED not in stash:
        stash[_SHARED] = ControlPlane.start(Path(assets), Path(tempfile.mkdtemp(prefix="ddpjob-")), controllers=True)
    node.workerinput["control_plane"] = stash[_SHARED].shared()


def pytest_unconfigure(config: pytest.Config) -> None:
    plane = config.stash.get(_SHARED, None)
    if plane is not None:
        plane.stop()
        shutil.rmtree(plane.folder.parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First, and so by one worker, the tests that need a control plane of another kind: it starts one for them all."""
    other = {"breakable_control_planes": 0, "scheduled": 1}
    items.sort(key=lambda item: min((other.get(name, 2) for name in getattr(item, "fixturenames", ())), default=2))


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder with Kubernetes' programs."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver: `make test` builds them")
    return Path(folder)


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and the garbage collector, shared by all tests that neither break it nor change the API."""
    worker = getattr(request.config, "workerinput", {})
    if "control_plane" in worker:
        yield ControlPlane.joined(worker["control_plane"], worker["workerid"])
        return
    plane = ControlPlane.start(assets, tmp_path_factory.mktemp("control-plane"), controllers=True)
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def breakable_control_planes(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], ControlPlane]]:
    """The control plane that tests break or change, made again after one that did not leave it well."""
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
