"""One control plane for the whole run, and a namespace for each test."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.controlplane import Client, ControlPlane
from tests.dealing import dealt

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


# What takes longest, from the longest on.
LONGEST = (
    "test_a_crash_at_any_write_leads_to_the_same_end[restart]",
    "test_a_crash_at_any_write_leads_to_the_same_end[fail]",
    "test_a_crash_at_any_write_leads_to_the_same_end[create]",
    "test_what_pods_wait_for",
    "test_a_watch_that_is_not_answered",
    "test_two_jobs_with_the_same_ports",
    "test_of_two_operators_whose_leader_changes",
    "test_each_shard_does",
    "test_a_template_that_is_nested_too_deep",
    "test_a_used_up_quota",
    "test_a_crash_at_any_write",
    "test_a_pod_that_is_evicted",
    "test_a_standby_neither_polls",
    "test_a_webhook_that_fails",
    "test_what_has_a_name_of_the_jobs",
    "test_the_operator_uses_all_of_its_permissions",
)


# What starts a control plane of its own kind.
PLANES = ("breakable_control_planes", "scheduled", "autoscaled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, by different workers, and all that need the same other control plane by one of them."""

    def plane(item: pytest.Item) -> str:
        return next((plane for plane in PLANES if plane in getattr(item, "fixturenames", ())), "")

    together = [[item for item in items if plane(item) == each] for each in PLANES]
    items[:] = dealt(items, getattr(config, "workerinput", {}).get("workercount", 1), LONGEST, together)


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
def own_control_plane(assets: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """One on which no other test has left anything, and none finds what this one leaves."""
    plane = ControlPlane.start(assets, tmp_path / "control-plane")
    yield plane
    plane.stop()


@pytest.fixture
def admin(control_plane: ControlPlane) -> Client:
    return control_plane.admin


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    return control_plane.new_namespace()
