"""Two replicas of the operator: the leader is killed while a job trains."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kubectl import Kubectl, wait_until
from steady import EPOCHS, STEPS_PER_EPOCH, losses, train_longer

from hack.bench.leader.replicas import OVERLAY, Replicas
from hack.cluster.deploy import NAMESPACE, TESTED, deploy
from hack.cluster.engine import choose_engine
from hack.cluster.kind import LOG

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.environ.get("USE_EXISTING_CLUSTER") == "1", reason="stops a process on a node"),
    pytest.mark.timeout(300),
]

LONGER = 2
"""So many times as many epochs as usual: it trains until another process leads."""
REPLACED = 15.0
"""Seconds within which another process leads."""


@pytest.fixture
def replicas(kubectl: Kubectl) -> Iterator[Replicas]:
    assert kubectl
    deploy(overlay=OVERLAY)
    try:
        yield Replicas(choose_engine(LOG))
    finally:
        deploy(overlay=TESTED)
        Kubectl(NAMESPACE)("delete", "poddisruptionbudget", "ddpjob-operator")


def test_a_killed_leader_is_replaced_and_a_training_loses_nothing(kubectl: Kubectl, replicas: Replicas) -> None:
    epoch = train_longer(kubectl, LONGER)["leaderEpoch"]
    pods = {pod["metadata"]["uid"] for pod in kubectl.list("pods")}
    leader = replicas.holder()
    killed = replicas.kill(leader)
    successor, seen = replicas.wait_for_other(leader)
    assert successor != leader
    assert seen - killed <= REPLACED
    status = kubectl.wait_for_phase("digits", "Succeeded")["status"]
    assert status["leaderEpoch"] > epoch
    assert (status["attempt"], status["restarts"]["counted"], status["restarts"]["ignored"]) == (0, 0, 0)
    assert {pod["metadata"]["uid"] for pod in kubectl.list("pods")} == pods
    assert len(losses(kubectl.logs("digits-a0-0"))) == LONGER * EPOCHS * STEPS_PER_EPOCH


def test_a_lease_that_is_edited_or_deleted_is_put_right(kubectl: Kubectl) -> None:
    replicas, system = Replicas(choose_engine(LOG)), Kubectl(NAMESPACE)
    leader = wait_until(replicas.holder, "an operator to lead")
    system("annotate", "lease", "ddpjob-operator", f"edited={kubectl.namespace}")
    before = renewed(system)
    wait_until(lambda: renewed(system) != before, "the edited Lease to be renewed")
    uid = lease(system)["metadata"]["uid"]
    system("delete", "lease", "ddpjob-operator")
    wait_until(lambda: lease(system).get("metadata", {}).get("uid", uid) != uid, "the Lease to be there again")
    assert replicas.holder() == leader


def lease(system: Kubectl) -> dict[str, Any]:
    return system.get("lease", "ddpjob-operator") or {}


def renewed(system: Kubectl) -> str:
    return str(lease(system)["spec"]["renewTime"])
