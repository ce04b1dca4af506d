"""When a job has succeeded."""

from world import running_world

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.children.actions import DeletePod
from ddpjob_core.policies.success import OTHERS_END_WITHIN


def test_under_mpirun_the_job_has_succeeded_when_node_0_has() -> None:
    world = running_world(launcher="mpirun")
    world.end("digits-a0-0", 0)
    world.end("digits-a0-1", 143)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUCCEEDED
    succeeded = world.status.condition(ConditionType.SUCCEEDED)
    assert succeeded is not None
    assert succeeded.message.startswith("mpirun on 2 nodes exited with 0")


def test_under_mpirun_the_other_nodes_have_a_moment_to_end_before_they_are_deleted_with_their_logs() -> None:
    world = running_world(launcher="mpirun")
    world.end("digits-a0-0", 0)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING
    assert world.reconcile().requeue_after is not None
    world.advance(OTHERS_END_WITHIN.total_seconds())
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED
    assert [request.name for request in world.requests if isinstance(request, DeletePod)] == ["digits-a0-1"]


def test_under_mpirun_a_node_that_ends_well_is_not_the_end() -> None:
    world = running_world(launcher="mpirun")
    world.end("digits-a0-1", 0)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING


def test_a_node_that_has_succeeded_has_not_failed_when_its_pod_is_removed() -> None:
    world = running_world(nodes=3)
    world.end("digits-a0-1", 0)
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert world.status.nodes is not None
    assert world.status.nodes.succeeded_ordinals == "1"
    del world.pods["digits-a0-1"]
    world.crash()
    world.advance(6)
    world.settle()
    assert (world.status.attempt, world.status.nodes.succeeded) == (0, 1)
    world.end("digits-a0-0", 0)
    world.end("digits-a0-2", 0)
    world.settle()
    assert world.status.holds(ConditionType.SUCCEEDED)


def test_what_succeeded_in_one_attempt_has_to_succeed_again_in_the_next() -> None:
    world = running_world(nodes=2)
    world.end("digits-a0-1", 0)
    world.advance(6)
    world.settle()
    world.end("digits-a0-0", 7)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(6)
    world.settle()
    assert sorted(world.live()) == ["digits-a1-0", "digits-a1-1"]
