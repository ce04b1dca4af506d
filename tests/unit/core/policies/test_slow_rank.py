"""spec.slowRank: a rank that slows down the others is moved to another node, once, and loses no step."""

from dataclasses import replace
from typing import Any

import pytest
from world import World, training

from ddpjob_core.api.status import DDPJobStatus, Progress, SlowPart
from ddpjob_core.children.actions import CreatePod, DeletePod
from ddpjob_core.wire.progress import ProgressReport, SlowestReport

AFTER = 60
REPLACE = {"action": "Replace", "seconds": AFTER}
SAVED = Progress(step=50, last_checkpoint_step=40)


def status_of(world: World) -> DDPJobStatus:
    assert world.status is not None
    return world.status


def slowed(what: SlowPart = SlowPart.COMPUTING, progress: Progress = SAVED, **spec: Any) -> World:
    """Four ranks on two nodes, of which the last one has just been named."""
    world = training(**{"procsPerNode": 2, "slowRank": REPLACE, "gracePeriodSeconds": 45, **spec})
    on_nodes(world, "node-0", "node-1")
    world.progress = ProgressReport(0, progress, "0.5", SlowestReport(3, 2.1, what))
    world.advance(6)
    world.settle()
    slowest = status_of(world).slowest
    assert slowest is not None
    assert slowest.time == world.now
    return world


def on_nodes(world: World, *nodes: str) -> None:
    for ordinal, node in enumerate(nodes):
        name = f"digits-a{world.attempt()}-{ordinal}"
        world.pods[name] = replace(world.pods[name], node_name=node)


def after(world: World, seconds: float) -> int:
    """The number of the attempt so many seconds later."""
    world.advance(seconds)
    world.settle()
    return status_of(world).attempt


def test_the_next_attempt_begins_when_the_ranks_have_saved_and_avoids_the_node() -> None:
    world = slowed()
    assert after(world, AFTER - 1) == 0
    assert after(world, 1) == 1
    replaced = status_of(world).replaced
    assert replaced is not None
    assert (replaced.rank, replaced.node_name, replaced.attempt, replaced.time) == (3, "node-1", 0, world.now)
    assert status_of(world).slowest is None
    # They have the whole grace period, and no pod is created before they have stopped.
    deletions = [action for action in world.requests if isinstance(action, DeletePod)]
    assert {action.name: action.grace_seconds for action in deletions} == {"digits-a0-0": None, "digits-a0-1": None}
    assert not [name for name in world.creations if name.startswith("digits-a1")]
    world.kubelet_removes_deleted_pods()
    world.settle()
    created = [action for action in world.requests if isinstance(action, CreatePod) and action.attempt == 1]
    assert [action.lost_nodes for action in created] == [("node-1",), ("node-1",)]
    # Nothing of it counts.
    restarts = status_of(world).restarts
    assert (restarts.counted, restarts.ignored, restarts.in_a_row, restarts.last_time) == (0, 0, 0, None)
    (message,) = (event.message for event in world.events if event.reason == "Replaced")
    assert message == (
        "rank 3 on node node-1 took 2.1 times as long as the others (Computing): attempt 1 starts on other nodes if "
        "they have room (not counted as a restart)"
    )


def test_a_job_that_had_no_room_for_all_its_nodes_goes_on_with_those_that_it_had() -> None:
    """All of them would be created, and those that ran would idle for spec.elastic.scaleDownAfterSeconds."""
    world = slowed(procsPerNode=2, nodes=2, elastic={"minNodes": 1, "maxNodes": 4})
    world.spec = world.spec.model_copy(update={"nodes": 4})
    world.settle()
    after(world, AFTER)
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert status_of(world).attempt == 1
    membership = status_of(world).membership
    assert membership is not None
    assert (membership.attempt, membership.nodes) == (1, 2)


def test_it_happens_once_and_later_attempts_avoid_the_node_too() -> None:
    world = slowed()
    after(world, AFTER)
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.run_all()
    on_nodes(world, "node-0", "node-2")
    world.progress = ProgressReport(1, SAVED, "0.5", SlowestReport(3, 2.1, SlowPart.COMPUTING))
    assert after(world, 6) == 1
    slowest = status_of(world).slowest
    assert slowest is not None
    assert (slowest.node_name, slowest.attempt) == ("node-2", 1)
    assert after(world, 10 * AFTER) == 1
    world.end("digits-a1-0", 1)
    world.advance(10)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(120)
    world.settle()
    created = [action for action in world.requests if isinstance(action, CreatePod) and action.attempt == 2]
    assert [action.lost_nodes for action in created] == [("node-1",), ("node-1",)]


@pytest.mark.parametrize(
    "world",
    [
        slowed(slowRank={"action": "Warn", "seconds": AFTER}),
        slowed(slowRank={}),
        # It is rank 0 that saves, wherever it runs.
        slowed(SlowPart.CHECKPOINT),
        # All would be lost.
        slowed(progress=Progress(step=50)),
        # It is done sooner as it is.
        slowed(progress=SAVED.model_copy(update={"eta_seconds": AFTER - 1})),
    ],
    ids=["only a warning", "by default", "its checkpoints", "nothing saved", "almost done"],
)
def test_a_job_goes_on_as_it_is_where_moving_cannot_help(world: World) -> None:
    assert after(world, 10 * AFTER) == 0


def test_a_job_that_uses_one_node_only_stays_there() -> None:
    world = slowed()
    on_nodes(world, "node-1", "node-1")
    assert after(world, 10 * AFTER) == 0
    on_nodes(world, "node-0", "node-1")
    assert after(world, 1) == 1


def test_a_rank_that_is_no_longer_named_stays_where_it_is() -> None:
    world = slowed()
    world.advance(AFTER - 3)
    world.settle()
    world.progress = ProgressReport(0, SAVED, "0.5", None)
    assert after(world, 3) == 0
    # Named again, it has its whole time again.
    world.progress = ProgressReport(0, SAVED, "0.5", SlowestReport(3, 2.1, SlowPart.COMPUTING))
    assert after(world, 6) == 0
    assert after(world, AFTER - 1) == 0
    assert after(world, 1) == 1


def test_another_rank_has_its_own_time() -> None:
    world = slowed()
    world.progress = ProgressReport(0, SAVED, "0.5", SlowestReport(2, 2.1, SlowPart.COMPUTING))
    assert after(world, AFTER) == 0
    assert after(world, AFTER) == 1
    replaced = status_of(world).replaced
    assert replaced is not None
    assert replaced.rank == 2


def test_a_new_operator_waits_until_rank_0_names_the_rank_again() -> None:
    world = slowed()
    world.crash()
    assert after(world, 10 * AFTER) == 0
    world.progress = ProgressReport(0, SAVED, "0.5", SlowestReport(3, 2.1, SlowPart.COMPUTING))
    assert after(world, 6) == 1


def test_an_operator_that_is_behind_waits_no_longer_than_the_time_that_is_asked_for() -> None:
    world = slowed()
    world.take_over(-3600)
    world.progress = ProgressReport(0, SAVED, "0.5", SlowestReport(3, 2.1, SlowPart.COMPUTING))
    assert after(world, 0) == 0
    assert after(world, AFTER) == 1


@pytest.mark.parametrize("crash_after", range(5))
def test_wherever_an_operator_ends_the_next_one_goes_on_and_the_rank_is_moved_once(crash_after: int) -> None:
    world = slowed()
    world.advance(AFTER)
    world.reconcile(crash_after=crash_after)
    world.progress = ProgressReport(world.attempt(), SAVED, "0.5", SlowestReport(3, 2.1, SlowPart.COMPUTING))
    for _ in range(5):
        world.advance(AFTER)
        world.settle()
        world.kubelet_removes_deleted_pods()
        for name in world.live():
            world.run(name)
    assert status_of(world).attempt == 1
    graces = {action.grace_seconds for action in world.requests if isinstance(action, DeletePod)}
    assert graces == {None}


def test_a_rank_that_fails_at_that_moment_is_a_failure() -> None:
    world = slowed()
    world.end("digits-a0-1", 1)
    assert after(world, AFTER) == 1
    assert (status_of(world).restarts.counted, status_of(world).replaced) == (1, None)


def test_a_job_that_is_suspended_at_that_moment_is_suspended() -> None:
    world = slowed()
    world.spec = world.spec.model_copy(update={"suspend": True})
    assert after(world, AFTER) == 0
    assert status_of(world).replaced is None
