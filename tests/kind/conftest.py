"""A namespace for each test, on the cluster that KUBECONFIG names, with the operator of this tree deployed."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kubectl import Kubectl

from hack.deploy import deploy


@pytest.fixture(scope="session")
def operator() -> datetime:
    """The operator, deployed as a user deploys it, and since when."""
    since = datetime.now(UTC)
    deploy()
    return since


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
