"""A namespace for each test, on the cluster that KUBECONFIG names, with the operator of this tree deployed."""

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kubectl import Kubectl

from hack.cluster.deploy import deploy


@pytest.fixture(scope="session")
def operator() -> datetime:
    """The operator, deployed as a user deploys it, and since when tests use it, be they one run of pytest or two."""
    since = os.environ.get("DDPJOB_TESTS_SINCE")
    begun = datetime.fromisoformat(since) if since else datetime.now(UTC)
    deploy()
    return begun


@pytest.fixture
def kubectl(operator: datetime) -> Iterator[Kubectl]:
    assert operator
    cluster = Kubectl()
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    cluster("create", "namespace", namespace)
    yield Kubectl(namespace)
    cluster("delete", "namespace", namespace, "--wait=false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What the operator used can only be told after it has been used for everything.
    items.sort(key=lambda item: item.path.name == "test_permissions.py")
