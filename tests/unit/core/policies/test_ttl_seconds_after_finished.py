"""spec.ttlSecondsAfterFinished."""

from datetime import timedelta

from world import running_world

from ddpjob_core.children.actions import DeleteJob


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
