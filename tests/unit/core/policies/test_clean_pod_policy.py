"""spec.cleanPodPolicy."""

import pytest
from world import running_world

from ddpjob_core.api import ConditionType


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("None", {"digits-a0-0", "digits-a0-1"}), ("Running", {"digits-a0-0"}), ("All", set())],
)
def test_clean_pod_policy_decides_which_pods_are_deleted_when_the_job_has_finished(policy: str, kept: set[str]) -> None:
    world = running_world(cleanPodPolicy=policy, restart={"maxRestarts": 0})
    world.end("digits-a0-0", 1)
    world.settle()
    world.advance(5)
    world.settle()
    world.kubelet_removes_deleted_pods()
    assert set(world.pods) == kept


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_job_that_fails_while_it_runs_leaves_nothing_running_even_if_the_operator_dies_between(policy: str) -> None:
    world = running_world(cleanPodPolicy=policy, activeDeadlineSeconds=60)
    world.advance(61)
    # Only the status is written, and the first of the deletions is not.
    world.reconcile(crash_after=1)
    assert world.status is not None
    assert world.status.holds(ConditionType.FAILED)
    world.settle()
    world.kubelet_removes_deleted_pods()
    assert not world.live()
