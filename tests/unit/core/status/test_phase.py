"""The one word for the state of a job."""

from collections.abc import Callable

import pytest
from world import World, running_world

from ddpjob_core.api import Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.wire.progress import ProgressReport

LOST = "RuntimeError: Connection reset by peer"


def end(world: World) -> None:
    # Only a consequence: the cause is waited for.
    world.end("digits-a0-1", 1, LOST)


def delete(world: World) -> None:
    # The ranks are given time to save.
    world.delete_pod("digits-a0-1")


def reports(step: int) -> ProgressReport:
    return ProgressReport(0, Progress(step=step), "0.5")


@pytest.mark.parametrize("what", [end, delete])
@pytest.mark.parametrize("steps", [True, False])
def test_a_node_that_ends_does_not_make_a_running_job_start(what: Callable[[World], None], *, steps: bool) -> None:
    world = running_world()
    if steps:
        world.progress = reports(10)
        world.advance(6)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING
    # What changes is written at once.
    world.advance(6)
    before = len(world.status_writes)
    what(world)
    for _ in range(60):
        world.advance(1)
        world.settle()
        if world.status.attempt > 0:
            break
    assert world.status.attempt == 1
    shown = [status.phase for status in world.status_writes[before:] if status.attempt == 0]
    assert set(shown) <= {Phase.RUNNING}
    assert world.status.phase is Phase.RESTARTING


def test_a_node_that_ends_before_all_were_up_leaves_the_job_starting() -> None:
    world = World()
    world.settle()
    world.run("digits-a0-0")
    world.advance(6)
    world.settle()
    world.end("digits-a0-0", 1, LOST)
    world.run("digits-a0-1")
    world.advance(1)
    world.settle()
    assert Phase.RUNNING not in [status.phase for status in world.status_writes]


def test_the_next_attempt_is_not_taken_for_running_before_its_own_nodes_are() -> None:
    world = running_world()
    world.end("digits-a0-1", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(10)
    world.settle()
    assert world.live() == ["digits-a1-0", "digits-a1-1"]
    for name in world.live():
        world.advance(6)
        world.settle()
        assert world.status is not None
        assert world.status.phase is Phase.RESTARTING
        world.run(name)
    world.advance(6)
    world.settle()
    assert world.status.phase is Phase.RUNNING
