"""spec.activeDeadlineSeconds."""

from datetime import timedelta

import pytest
from world import running_world

from ddpjob_core.api import ConditionType
from ddpjob_core.children.actions import DeletePod


def test_wall_time_ends_a_job_with_its_pods_own_grace_period() -> None:
    world = running_world(activeDeadlineSeconds=100)
    world.advance(93)
    plan = world.reconcile()
    assert plan.requeue_after == timedelta(seconds=1)
    world.advance(1)
    world.settle()
    assert world.status is not None
    condition = world.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == "DeadlineExceeded"
    stops = [action for action in world.requests if isinstance(action, DeletePod)]
    assert {(stop.name, stop.grace_seconds) for stop in stops} == {("digits-a0-0", None), ("digits-a0-1", None)}


def test_restarts_do_not_extend_the_wall_time_and_a_suspension_starts_it_over() -> None:
    world = running_world(activeDeadlineSeconds=100)
    world.end("digits-a0-0", 1)
    world.settle()
    world.advance(60)
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(1000)
    world.settle()
    world.spec = world.spec.model_copy(update={"suspend": False})
    world.settle()
    world.run_all()
    world.advance(99)
    world.settle()
    assert world.status is not None
    assert not world.status.finished
    world.advance(1)
    world.settle()
    assert world.status.finished


@pytest.mark.parametrize("policy", ["Running", "None", "All"])
def test_a_job_that_has_failed_shows_none_of_the_pods_that_were_stopped_as_ready(policy: str) -> None:
    world = running_world(activeDeadlineSeconds=100, cleanPodPolicy=policy)
    world.advance(100)
    world.settle()
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert world.status.nodes is not None
    assert (world.status.nodes.ready, world.status.nodes.failed, world.status.summary.nodes) == (0, 0, "0/2")


def test_pods_that_a_failed_job_leaves_running_are_shown_until_they_end() -> None:
    world = running_world(restart={"maxRestarts": 0}, cleanPodPolicy="None")
    world.end("digits-a0-0", 1)
    world.advance(20)
    world.settle()
    assert world.status is not None
    assert world.status.finished
    assert world.status.summary.nodes == "1/2"
    world.end("digits-a0-1", 1)
    world.advance(6)
    world.settle()
    assert world.status.summary.nodes == "0/2"
