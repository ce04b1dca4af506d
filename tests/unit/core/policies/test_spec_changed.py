"""A spec that was changed while the operator did not look."""

from dataclasses import replace

import pytest
from world import running_world

from ddpjob_core.api import ConditionType


def test_a_spec_that_was_edited_in_an_unseen_suspension_is_the_next_attempt_and_not_counted() -> None:
    world = running_world(nodes=2)
    world.crash()
    world.spec = world.spec.model_copy(update={"nodes": 1})
    world.end("digits-a0-0", 0)
    world.settle()
    assert world.status is not None
    assert not world.status.holds(ConditionType.SUCCEEDED), "one of two nodes is not a success"
    assert (world.status.attempt, world.status.restarts.counted) == (1, 0)
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.live() == ["digits-a1-0"]


def test_a_number_of_nodes_that_changes_the_pods_names_is_not_a_failure_either() -> None:
    world = running_world(nodes=2)
    world.crash()
    world.spec = world.spec.model_copy(update={"nodes": 12})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted) == (1, 0)
    assert len(world.live()) == 12


@pytest.mark.parametrize("field", [{"ttl_seconds_after_finished": 60}, {"clean_pod_policy": "All"}])
def test_a_field_that_no_pod_is_made_of_leaves_the_pods_alone(field: dict[str, object]) -> None:
    world = running_world()
    world.spec = world.spec.model_copy(update=field)
    plan = world.reconcile()
    assert plan.actions == ()
    assert world.status is not None
    assert world.status.attempt == 0


def test_a_pod_without_a_hash_of_its_spec_continues() -> None:
    world = running_world()
    world.pods = {name: replace(pod, spec_hash=None) for name, pod in world.pods.items()}
    assert world.reconcile().actions == ()
