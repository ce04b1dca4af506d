"""How long the end of the other nodes of a failed attempt is waited for."""

from dataclasses import replace
from datetime import timedelta

from world import running_world, training

from ddpjob_core.observations.failed_attempt import LEAVE_TOGETHER


def test_a_deleted_pod_of_a_training_is_given_the_time_to_save() -> None:
    world = training()
    world.delete_pod("digits-a0-1", 30)
    world.report_rank(0, 41)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0, "all ranks agree to save before they leave"
    world.end("digits-a0-1", 143, '{"exitCode":143,"stopped":true}')
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], deletion_time=world.now + timedelta(seconds=29))
    world.settle()
    assert world.status.attempt == 0, "the others end at the same moment"
    world.end("digits-a0-0", 143, '{"exitCode":143,"stopped":true}')
    world.settle()
    assert "digits-a0-0" in world.pods, "its log can be read"
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
    assert world.status.failure is not None
    assert world.status.failure.reason == "PodDeleted"


def test_an_evicted_pod_that_is_gone_before_the_others_have_ended_is_still_an_evicted_one() -> None:
    world = training()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], disruption="EvictionByEvictionAPI")
    world.delete_pod("digits-a0-1", 30)
    world.report_rank(0, 41)
    world.settle()
    del world.pods["digits-a0-1"]
    world.crash()
    world.end("digits-a0-0", 143, '{"exitCode":143,"stopped":true}')
    world.settle()
    assert world.status is not None
    assert world.status.failure is not None
    assert world.status.failure.failure_class == "Disruption"
    assert (world.status.attempt, world.status.restarts.counted, world.status.restarts.ignored) == (1, 0, 1)


def test_an_evicted_pod_that_is_gone_immediately_does_not_take_the_logs_of_the_others_with_it() -> None:
    world = training()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], disruption="EvictionByEvictionAPI")
    world.delete_pod("digits-a0-1", 30)
    world.report_rank(0, 41)
    world.end("digits-a0-1", 143, '{"exitCode":143,"stopped":true}')
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0, "node 0 is about to end by itself"
    world.end("digits-a0-0", 143, '{"exitCode":143,"stopped":true}')
    world.settle()
    assert (world.status.attempt, world.status.restarts.counted, world.status.restarts.ignored) == (1, 0, 1)
    assert "digits-a0-0" in world.pods, "its log can be read"


def test_nodes_that_do_not_end_together_with_the_one_that_was_stopped_are_not_waited_for_long() -> None:
    world = training()
    world.end("digits-a0-1", 143, '{"exitCode":143,"stopped":true}')
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], deletion_time=world.now + timedelta(seconds=29))
    world.settle()
    world.advance(LEAVE_TOGETHER.total_seconds() - 1)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= timedelta(seconds=1)
    world.advance(1)
    world.settle()
    assert world.status.attempt == 1


def test_a_deleted_pod_that_saves_nothing_is_not_waited_for() -> None:
    world = running_world()
    world.delete_pod("digits-a0-1", 30)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 1


def test_a_lost_node_ends_the_attempt_and_does_not_block_the_next() -> None:
    world = training()
    world.advance(20)
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], node_lost=True)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
    assert world.status.failure is not None
    assert world.status.failure.reason == "NodeLost"
    del world.pods["digits-a0-0"]
    world.advance(1)
    world.settle()
    assert {"digits-a1-0", "digits-a1-1"} <= set(world.pods), "what is on the lost node is not waited for"


def test_a_node_that_only_lost_its_kubelet_continues_training() -> None:
    world = training()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], node_lost=True)
    world.report_rank(0, 41)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0
