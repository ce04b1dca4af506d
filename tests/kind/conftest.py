"""A namespace for each test, on the cluster that KUBECONFIG names, with the operator of this tree deployed."""

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kubectl import Kubectl

from hack.cluster.deploy import TESTED, deploy
from tests.dealing import dealt


@pytest.fixture(scope="session")
def operator() -> datetime:
    """The operator, deployed as a user deploys it, and since when tests use it, be they one run of pytest or two."""
    since = os.environ.get("DDPJOB_TESTS_SINCE")
    begun = datetime.fromisoformat(since) if since else datetime.now(UTC)
    deploy(overlay=TESTED)
    return begun


@pytest.fixture
def kubectl(operator: datetime, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """A namespace that enforces the standard of the marker `pod_security`, the strictest one without it."""
    assert operator
    cluster = Kubectl()
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    marker = request.node.get_closest_marker("pod_security")
    level = marker.args[0] if marker else "restricted"
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    yield Kubectl(namespace)
    cluster("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def elsewhere(kubectl: Kubectl) -> Iterator[Kubectl]:
    """A namespace of another tenant."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", namespace)
    yield Kubectl(namespace)
    kubectl("delete", "namespace", namespace, "--wait=false")


# What takes longest, from the longest on.
LONGEST = (
    "test_whatever_ends_on_the_way",
    "test_every_query_of_dashboards_and_rules",
    "test_a_job_changes_its_size",
    "test_a_rank_that_hangs",
    "test_digits_train_on_two_nodes",
    "test_a_script_trains_in_a_plain_torch_image",
    "test_a_tutorial_trains",
    "test_a_converted_launch_line",
    "test_a_claim_is_made_kept_or_removed",
    "test_a_script_is_run_watched",
    "test_a_rank_that_never_leaves_a_loop",
    "test_a_job_whose_time_is_up",
    "test_names_that_another_user",
    "test_static_rendezvous",
    "test_every_failure_names_its_class",
    "test_under_mpirun_the_rank_that_failed",
    "test_a_killed_rank",
    "test_a_second_job_with_the_same_ports",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, by different workers."""
    items[:] = dealt(items, getattr(config, "workerinput", {}).get("workercount", 1), LONGEST)
    # What the operator used is known only after it has been used for everything.
    items.sort(key=lambda item: item.path.name == "test_permissions.py")
