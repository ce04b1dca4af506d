"""An operator that has just taken over may know an older status of a job than its pods show."""

import pytest
from world import World, running_world, spec_of, words

from ddpjob_core.api import DDPJobStatus


def restarted() -> tuple[World, DDPJobStatus]:
    """A job in its second attempt, and its status before that."""
    world = running_world()
    world.end("digits-a0-1", 1)
    before = world.status
    assert before is not None
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(30)
    world.settle()
    world.run_all()
    assert world.status is not None
    assert world.status.attempt == 1
    return world, before


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "resumed meanwhile"])
def test_pods_of_a_later_attempt_are_left_alone_until_the_status_that_belongs_to_them_is_known(
    *, suspended: bool
) -> None:
    world, before = restarted()
    now = world.status
    world.take_over(0)
    world.status, world.spec = before, spec_of(suspend=suspended)
    plan = world.reconcile()
    assert (plan.status, plan.actions) == (None, ())
    assert plan.requeue_after is not None
    world.status, world.spec = now, spec_of()
    world.settle()
    assert world.live() == ["digits-a1-0", "digits-a1-1"]


def test_an_attempt_that_was_set_back_is_taken_as_it_is_after_a_while() -> None:
    world, before = restarted()
    world.take_over(0)
    world.status = before
    world.reconcile()
    world.advance(15)
    seen = len(world.requests)
    world.settle()
    assert "DeletePod" in words(world.requests[seen:])
