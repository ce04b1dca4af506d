"""Nodes that run and cannot reach node 0: what the conditions say of them, and who is asked."""

from dataclasses import replace
from datetime import timedelta

import pytest
from world import World, spec_of

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.status import Condition
from ddpjob_core.observations.observed import Running
from ddpjob_core.observations.rendezvous import FORGOTTEN_AFTER, MOST_NODES
from ddpjob_core.wire.rank_report import Activity, RendezvousWait, WaitReason


def running(nodes: int = 3, **fields: object) -> World:
    world = World(spec=spec_of(nodes=nodes, **fields))
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    return world


def written(world: World) -> None:
    """Time passes until a change other than a transition may be written."""
    world.advance(5)
    for ordinal, known in world.waits.items():
        world.waits[ordinal] = replace(known, answered=world.now)
    world.settle()


def wait(world: World, ordinal: int, reason: WaitReason = WaitReason.NAME_NOT_RESOLVED, attempt: int = 0) -> None:
    message = f"digits-a{attempt}-0.digits does not exist yet"
    world.waits[ordinal] = RendezvousWait(attempt, ordinal, world.now, reason, message)


def condition(world: World, kind: ConditionType) -> Condition:
    assert world.status is not None
    found = world.status.condition(kind)
    assert found is not None
    return found


@pytest.mark.parametrize("reason", WaitReason)
def test_a_node_that_cannot_reach_node_0_is_named_with_what_to_check(reason: WaitReason) -> None:
    world = running()
    assert condition(world, ConditionType.RENDEZVOUS_READY).status == "True"
    wait(world, 2, reason)
    written(world)
    ready = condition(world, ConditionType.RENDEZVOUS_READY)
    assert (ready.status, ready.reason) == ("False", reason.value)
    assert ready.message == (
        "3/3 nodes are up, 1 cannot reach node 0; digits-a0-2: digits-a0-0.digits does not exist yet: "
        "check kubectl logs digits-a0-0, the cluster's DNS and its network policies"
    )
    assert condition(world, ConditionType.TRAINING).reason == "WaitingForRendezvous"
    assert world.status is not None
    assert world.status.phase is Phase.STARTING


def test_of_many_nodes_that_say_the_same_some_are_named_and_it_is_said_once() -> None:
    world = running(nodes=6)
    for ordinal in (5, 3, 4, 1, 2):
        wait(world, ordinal)
    written(world)
    message = condition(world, ConditionType.RENDEZVOUS_READY).message
    assert message.startswith(
        "6/6 nodes are up, 5 cannot reach node 0; pods digits-a0-1, digits-a0-2, digits-a0-3, ... (5): "
        "digits-a0-0.digits does not exist yet: check "
    )


def test_a_wait_is_over_when_the_node_says_nothing_more() -> None:
    world = running()
    wait(world, 1)
    written(world)
    world.advance(FORGOTTEN_AFTER.total_seconds() - 1)
    world.settle()
    assert condition(world, ConditionType.RENDEZVOUS_READY).status == "False"
    # Nothing but time changes: it must have been asked for.
    again = world.reconcile().requeue_after
    assert again is not None
    assert again <= timedelta(seconds=2)
    world.advance(1)
    world.settle()
    assert condition(world, ConditionType.RENDEZVOUS_READY).status == "True"
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING


def test_a_wait_of_an_older_attempt_or_of_a_node_that_has_ended_is_none() -> None:
    world = running()
    wait(world, 1, attempt=7)
    wait(world, 2)
    wait(world, 9)
    world.end("digits-a0-2", 0)
    written(world)
    assert condition(world, ConditionType.RENDEZVOUS_READY).status == "True"


def test_while_pods_are_missing_they_are_what_is_reported() -> None:
    world = World(spec=spec_of(nodes=2))
    world.settle()
    world.run("digits-a0-1")
    wait(world, 1)
    world.advance(6)
    world.settle()
    assert condition(world, ConditionType.RENDEZVOUS_READY).reason == "WaitingForPods"


def test_a_job_whose_nodes_do_not_meet_has_not_started() -> None:
    world = running(startupDeadline={"seconds": 20, "action": "Fail"})
    world.advance(20)
    wait(world, 1)
    world.settle()
    assert world.status is not None
    assert world.status.failure is not None
    assert world.status.failure.reason == "StartupDeadlineExceeded"
    assert "digits-a0-1: digits-a0-0.digits does not exist yet" in world.status.failure.message


def test_all_nodes_are_polled_from_when_they_run_until_a_rank_reports() -> None:
    world = World(spec=spec_of(nodes=3, procsPerNode=2))
    world.settle()
    world.run("digits-a0-0")
    world.run("digits-a0-1")
    assert [target.ordinal for target in world.reconcile().poll] == [0]
    world.run("digits-a0-2")
    targets = world.reconcile().poll
    assert [(target.ordinal, target.rank, target.port) for target in targets] == [
        (0, 0, 9401),
        (1, 2, 9401),
        (2, 4, 9401),
    ]
    world.report_rank(0, None, activity=Activity.STARTING)
    assert [target.ordinal for target in world.reconcile().poll] == [0]


def test_a_program_that_reports_nothing_is_polled_no_longer_than_its_nodes_may_wait() -> None:
    world = running(rendezvous={"timeoutSeconds": 60})
    assert len(world.reconcile().poll) == 3
    world.advance(60)
    assert [target.ordinal for target in world.reconcile().poll] == [0]
    # A kubelet that does not say since when.
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], trainer=Running(None))
    assert [target.ordinal for target in world.reconcile().poll] == [0, 1]


def test_only_some_nodes_of_a_large_job_are_polled() -> None:
    world = running(nodes=100)
    assert len(world.reconcile().poll) == 1 + MOST_NODES


def test_a_node_that_waits_for_a_node_0_that_has_ended_does_not_wait_until_the_timeout() -> None:
    world = running(nodes=2, launcher="python")
    world.end("digits-a0-0", 0)
    world.settle()
    assert [target.ordinal for target in world.reconcile().poll] == [1]
    world.advance(2)
    wait(world, 1)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
    failure = world.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod) == ("Node0Ended", "digits-a0-1")
    assert "node 1 has started too late: node 0 has already ended with exit code 0" in failure.message


def test_a_node_that_waited_before_node_0_ended_may_have_met_it_since() -> None:
    world = running(nodes=2, launcher="python")
    wait(world, 1)
    world.advance(1)
    world.end("digits-a0-0", 0)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0


def test_under_mpirun_the_other_nodes_wait_for_node_0_to_report_the_end() -> None:
    world = running(nodes=2, launcher="mpirun")
    world.end("digits-a0-0", 0)
    world.advance(1)
    wait(world, 1)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0


def test_no_node_is_polled_twice_and_no_more_than_can_be_polled_of_one_job() -> None:
    world = running(nodes=4, launcher="python", procsPerNode=256, progressDeadline={"seconds": 20})
    world.report_rank(0, 40)
    world.end("digits-a0-0", 0)
    world.advance(15)
    polled = world.reconcile().poll
    assert len(polled) == len(set(polled)) == 512
