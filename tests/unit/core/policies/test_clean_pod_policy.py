"""spec.cleanPodPolicy."""

import pytest
from world import running_world


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
