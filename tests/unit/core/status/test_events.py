"""The Events of a job."""

from world import running_world

from ddpjob_core.api.status import Progress
from ddpjob_core.wire.progress import ProgressReport


def test_a_job_that_succeeds_has_at_most_three_events() -> None:
    world = running_world()
    world.progress = ProgressReport(0, Progress(step=1, total_steps=10), "0.5")
    world.advance(6)
    world.settle()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert [event.reason for event in world.events] == ["PodsCreated", "Training", "Succeeded"]
