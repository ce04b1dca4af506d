"""spec.progressDeadline: stalled trainings, seen and acted on."""

from datetime import timedelta

import pytest
from world import World, running_world, training

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.wire.progress import ProgressReport
from ddpjob_core.wire.rank_report import Activity


def stand_still(world: World, seconds: float, *ranks: tuple[int, int, str]) -> None:
    """Time passes; then these ranks answer, each with its step and activity, without a newer step."""
    world.advance(seconds)
    for rank, step, activity in ranks:
        world.report_rank(rank, step, since_step=seconds + 6, activity=Activity(activity))
    world.settle()


def stalled(world: World) -> str:
    """The message of the condition TrainingStalled, "" where it does not hold."""
    assert world.status is not None
    condition = world.status.condition(ConditionType.TRAINING_STALLED)
    return condition.message if condition is not None and condition.status == "True" else ""


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(0, 40, "step"), (1, 39, "data")], "rank 1 (node 1, step 39) is behind; the others have completed step 40"),
        (
            [(0, 40, "step"), (1, 40, "data")],
            "rank 1 (node 1, step 40): waiting for data; the others are waiting in the step",
        ),
        (
            [(0, 40, "step"), (1, 40, "step")],
            "all ranks are waiting in the step after step 40: a collective does not finish",
        ),
        ([(0, 40, "step")], "rank 1 (node 1, step 40) does not respond; the others are waiting at step 40"),
        ([(1, 40, "step")], "rank 0 (node 0, step 40) does not respond; the others are waiting at step 40"),
        ([(0, 40, "data"), (1, 40, "data")], "all responding ranks: waiting for data, after step 40"),
    ],
)
def test_a_stall_names_the_rank_that_the_others_wait_for(answers: list[tuple[int, int, str]], told: str) -> None:
    world = training()
    stand_still(world, 21, *answers)
    assert told in stalled(world)
    assert world.status is not None
    assert world.status.phase is Phase.STALLED
    assert [event.reason for event in world.events].count("TrainingStalled") == 1


def test_a_stall_is_reported_immediately_and_only_once() -> None:
    world = training()
    world.last_write = world.now + timedelta(seconds=21)
    stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    assert stalled(world)
    written = len(world.status_writes)
    for _ in range(5):
        stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    assert len(world.status_writes) == written


def test_a_training_that_makes_steps_again_is_no_longer_stalled() -> None:
    world = training()
    stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    world.progress = ProgressReport(0, Progress(step=41), "0.4")
    world.report_rank(0, 41)
    world.settle()
    assert not stalled(world)
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING


@pytest.mark.parametrize("activity", ["checkpoint", "evaluation"])
def test_a_checkpoint_or_an_evaluation_may_take_ten_times_as_long(activity: str) -> None:
    world = training()
    stand_still(world, 150, (0, 40, activity), (1, 40, activity))
    assert not stalled(world)
    stand_still(world, 60, (0, 40, activity), (1, 40, activity))
    world.report_rank(0, 40, since_step=201, activity=Activity(activity))
    world.report_rank(1, 40, since_step=201, activity=Activity(activity))
    world.settle()
    assert stalled(world)


def test_a_program_that_reports_no_step_is_never_judged() -> None:
    world = running_world(progressDeadline={"seconds": 5, "action": "Fail"})
    for _ in range(10):
        world.advance(1000)
        world.report_rank(0, None)
        world.settle()
    assert world.status is not None
    assert not world.status.finished
    assert world.status.condition(ConditionType.TRAINING_STALLED) is None


def test_a_program_that_says_it_has_finished_may_take_its_time_to_end() -> None:
    world = training()
    stand_still(world, 1000, (0, 40, "finished"), (1, 40, "finished"))
    assert not stalled(world)


def test_where_no_rank_answers_nothing_is_known_and_nothing_done() -> None:
    world = training(progressDeadline={"seconds": 5, "action": "Restart"})
    for _ in range(10):
        stand_still(world, 100)
    assert world.status is not None
    assert (world.status.attempt, stalled(world)) == (0, "")


def test_all_ranks_are_polled_only_when_a_stall_is_suspected() -> None:
    world = training(procsPerNode=2)
    assert [target.rank for target in world.reconcile().poll] == [0]
    stand_still(world, 11)
    plan = world.reconcile()
    assert [(target.rank, target.port) for target in plan.poll] == [(0, 9401), (1, 9402), (2, 9401), (3, 9402)]
    assert plan.requeue_after is not None
    assert plan.requeue_after <= timedelta(seconds=3)


def test_an_evaluation_is_not_charged_to_the_step_after_it() -> None:
    world = training()
    stand_still(world, 100, (0, 40, "evaluation"), (1, 40, "evaluation"))
    world.advance(60)
    for rank in (0, 1):
        world.report_rank(rank, 40, since_step=166, quiet_seconds=2, activity=Activity.DATA)
    world.settle()
    assert not stalled(world)


def test_the_status_shows_where_the_culprit_hangs_or_else_who_waits_for_it() -> None:
    world = training(progressDeadline={"seconds": 20, "action": "Fail"})
    world.advance(21)
    world.report_rank(0, 40, since_step=27, activity=Activity.STEP, stack='File "train.py", line 7, in step')
    world.settle()
    world.advance(2)
    world.settle()
    assert world.status is not None
    assert world.status.failure is not None
    assert world.status.failure.rank == 1
    assert world.status.failure.traceback == 'rank 0 hangs in:\nFile "train.py", line 7, in step'


def test_the_action_restart_waits_for_the_stacks_and_counts() -> None:
    world = training(progressDeadline={"seconds": 20, "action": "Restart"})
    stand_still(world, 21, (0, 40, "step"), (1, 39, "step"))
    assert world.status is not None
    assert world.status.attempt == 0, "the condition is written first, and the ranks write their stacks"
    world.advance(2)
    world.settle()
    assert world.status.attempt == 0, "an answer that holds a stack is waited for"
    world.advance(3)
    for rank, step in ((0, 40), (1, 39)):
        world.report_rank(rank, step, since_step=32)
    world.settle()
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
    assert world.status.failure is not None
    assert (world.status.failure.failure_class, world.status.failure.rank) == ("Stalled", 1)
    assert not stalled(world)


def test_a_suspended_job_is_not_stalled() -> None:
    world = training()
    stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    assert stalled(world)
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert not stalled(world)
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDED


def test_the_action_fail_ends_the_job_and_stops_what_hangs() -> None:
    world = training(progressDeadline={"seconds": 20, "action": "Fail"}, cleanPodPolicy="None")
    stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    world.advance(5)
    for rank in (0, 1):
        world.report_rank(rank, 40, since_step=32)
    world.settle()
    assert world.status is not None
    condition = world.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == "TrainingStalled"
    assert not stalled(world)
    assert not world.live()
