"""No decision depends on how the clocks of two machines differ."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from world import World, running_world, spec_of, training, words

from ddpjob_core.api import Phase

HOUR = 3600
LOST = '{"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed"}]}'


@pytest.mark.parametrize("ahead", [-HOUR, -61, 0, 61, HOUR])
def test_a_node_that_has_not_seen_its_pod_has_a_minute_from_when_the_operator_saw_it(ahead: float) -> None:
    world = World(spec=spec_of(nodes=1), others_ahead=timedelta(seconds=ahead))
    world.settle()
    world.assign("digits-a0-0")
    world.advance(59)
    world.settle()
    assert world.attempt() == 0
    world.advance(1)
    world.settle()
    assert world.attempt() == 1


@pytest.mark.parametrize("ahead", [-HOUR, 0, HOUR])
def test_the_cause_of_a_lost_connection_is_waited_for_from_when_the_operator_saw_the_end(ahead: float) -> None:
    world = running_world()
    world.others_ahead = timedelta(seconds=ahead)
    world.end("digits-a0-0", 1, LOST)
    world.advance(4)
    world.settle()
    assert world.attempt() == 0
    world.advance(1)
    world.settle()
    assert world.attempt() == 1


@pytest.mark.parametrize("ahead", [-HOUR, 0, HOUR])
def test_under_mpirun_the_other_nodes_have_their_moment_to_end(ahead: float) -> None:
    world = running_world(launcher="mpirun")
    world.others_ahead = timedelta(seconds=ahead)
    world.end("digits-a0-0", 0)
    world.advance(14)
    world.settle()
    assert world.status is not None
    assert not world.status.finished
    world.advance(1)
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("ahead", [-HOUR, 0, HOUR])
def test_a_pod_that_is_never_confirmed_to_be_gone_is_waited_for_a_minute_after_its_grace_period(ahead: float) -> None:
    world = running_world()
    world.others_ahead = timedelta(seconds=ahead)
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    assert world.status is not None
    world.advance(89)
    world.settle()
    assert world.status.phase is Phase.SUSPENDING
    world.advance(1)
    world.settle()
    assert world.status.phase is Phase.SUSPENDED


def backing_off() -> World:
    world = running_world(restart={"backoffSeconds": 20})
    world.end("digits-a0-1", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    return world


def over(**fields: Any) -> Callable[[], World]:
    return lambda: running_world(**fields)


def finished() -> World:
    world = running_world(ttlSecondsAfterFinished=20)
    for name in ("digits-a0-0", "digits-a0-1"):
        world.end(name, 0)
    world.settle()
    return world


def stalled() -> World:
    world = training(progressDeadline={"seconds": 20, "action": "Restart"})
    hang(world)
    world.settle()
    return world


def hang(world: World) -> None:
    for rank in (0, 1):
        world.report_rank(rank, 40, since_step=30.0, stack="frozen")


def acted(world: World) -> bool:
    """Whether the operator has started or ended anything since the takeover."""
    return any(word.startswith(("Create Pod", "Delete")) for word in words(world.requests))


def starts(world: World) -> None:
    world.report_rank(0, None)


def nothing(_: World) -> None:
    """No rank answers."""


@pytest.mark.parametrize("ahead", [-HOUR, -1, 0])
@pytest.mark.parametrize(
    ("before", "polled"),
    [
        (backing_off, nothing),
        (over(activeDeadlineSeconds=20), nothing),
        (over(startupDeadline={"seconds": 20, "action": "Restart"}), starts),
        (finished, nothing),
        (stalled, hang),
    ],
    ids=["backoff", "active deadline", "startup deadline", "time to live", "progress deadline"],
)
def test_an_operator_whose_clock_is_behind_waits_no_longer_than_once_more(
    before: Callable[[], World], polled: Callable[[World], None], ahead: float
) -> None:
    world = before()
    world.take_over(ahead)
    world.requests.clear()
    for _ in range(22):
        polled(world)
        for _ in range(3):
            world.reconcile()
        if acted(world):
            return
        world.advance(1)
    raise AssertionError("nothing was done")


def test_a_wait_that_began_in_the_future_does_not_begin_again_with_every_reconcile() -> None:
    world = backing_off()
    world.take_over(-HOUR)
    world.settle()
    world.advance(10)
    # The status is written for another reason meanwhile, and so are its times.
    world.spec = world.spec.model_copy(update={"clean_pod_policy": "None"})
    world.settle()
    world.requests.clear()
    world.advance(10)
    world.settle()
    assert acted(world)


def test_a_takeover_alone_writes_nothing_even_with_a_clock_that_is_behind() -> None:
    world = running_world()
    world.take_over(-HOUR)
    written = len(world.status_writes)
    world.settle()
    assert len(world.status_writes) == written
