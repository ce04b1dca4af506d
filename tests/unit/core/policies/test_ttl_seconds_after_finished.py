"""spec.ttlSecondsAfterFinished."""

from datetime import timedelta

import pytest
from world import running_world

from ddpjob_core.children.actions import DeleteJob
from ddpjob_core.decide import decide


def test_time_to_live_counts_from_completion_and_deletes_the_job() -> None:
    world = running_world(ttlSecondsAfterFinished=60)
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    plan = world.reconcile()
    assert plan.requeue_after == timedelta(seconds=60)
    world.advance(59)
    assert not world.reconcile().actions
    world.advance(1)
    assert world.reconcile().actions == (DeleteJob("job-uid"),)


@pytest.mark.parametrize(("own", "counts"), [(None, 60), (5, 5), (600, 600)])
def test_a_job_without_a_time_to_live_has_the_operators(own: int | None, counts: int) -> None:
    world = running_world(**({} if own is None else {"ttlSecondsAfterFinished": own}))
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert decide(world.observe(), ttl_seconds_after_finished=60).requeue_after == timedelta(seconds=counts)
    world.advance(counts)
    assert decide(world.observe(), ttl_seconds_after_finished=60).actions == (DeleteJob("job-uid"),)


def test_the_operators_time_to_live_leaves_a_running_job_and_its_pods_alone() -> None:
    world = running_world()
    assert decide(world.observe(), ttl_seconds_after_finished=0).actions == ()
    assert decide(world.observe(), ttl_seconds_after_finished=0).status is None
