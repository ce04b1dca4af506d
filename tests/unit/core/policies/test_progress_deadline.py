"""spec.progressDeadline: stalled trainings, seen and acted on."""

from datetime import timedelta

import pytest
from world import World, running_world, training

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.observations.stall import MOST_RANKS
from ddpjob_core.observations.stall_culprit import waits_for_others
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
    # From here on all ranks are asked.
    world.advance(15)
    world.settle()
    stand_still(world, 21, *answers)
    assert told in stalled(world)
    assert world.status is not None
    assert world.status.phase is Phase.STALLED
    assert [event.reason for event in world.events].count("TrainingStalled") == 1


def test_a_rank_that_has_not_been_asked_lately_is_not_taken_for_one_that_does_not_respond() -> None:
    world = training()
    world.advance(15)
    world.settle()
    for rank in (0, 1):
        world.report_rank(rank, 40, since_step=15)
    world.settle()
    world.advance(10)
    world.report_rank(0, 40, since_step=25)
    # Where many endpoints are asked, the turn of one may come later than usual.
    world.polled = tuple(target for target in world.polled if target.rank == 0)
    world.reconcile()
    assert stalled(world)
    assert "does not respond" not in stalled(world)


def test_a_stall_is_reported_immediately_and_only_once() -> None:
    world = training()
    world.last_write = world.now + timedelta(seconds=21)
    stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    assert stalled(world)
    written = len(world.status_writes)
    for _ in range(5):
        stand_still(world, 21, (0, 40, "step"), (1, 40, "step"))
    assert len(world.status_writes) == written


def test_a_stall_does_not_end_because_only_a_rank_that_has_finished_still_answers() -> None:
    world = training()
    stand_still(world, 21, (0, 40, "finished"), (1, 39, "step"))
    assert stalled(world)
    stand_still(world, 6, (0, 40, "finished"))
    assert stalled(world)
    stand_still(world, 6, (0, 40, "finished"), (1, 40, "finished"))
    assert not stalled(world)


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


def test_of_too_many_ranks_those_of_as_many_nodes_as_possible_are_asked_and_the_message_says_so() -> None:
    world = training(nodes=200, procsPerNode=8)
    stand_still(world, 15)
    asked = world.reconcile().poll
    assert len(asked) == MOST_RANKS
    assert {target.ordinal for target in asked} == set(range(200))
    assert [target.rank for target in asked[:3]] == [0, 1, 2]
    world.advance(6)
    for target in asked:
        silent = target.ordinal == 150
        if not silent:
            world.report_rank(target.rank, 40, since_step=27)
    world.settle()
    assert "s; 512 of the 1,600 ranks are asked): ranks 1200 (node 150" in stalled(world)


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


WAITS = 'File "/venv/torch/distributed/distributed_c10d.py", line 9, in all_reduce\n    work.wait()\n'
SPINS = 'File "/job/train.py", line 12, in step\n    while True:\n'


def hang(world: World, *stacks: str | None, step: int = 40) -> None:
    """All ranks stand in the step after this one, each with its stack, or with none yet."""
    for rank, stack in enumerate(stacks):
        world.report_rank(rank, step, since_step=27, activity=Activity.STEP, stack=stack)
    world.settle()


def test_of_ranks_at_one_step_the_one_whose_stack_is_in_no_collective_is_named_with_its_own_stack() -> None:
    world = training(nodes=4, progressDeadline={"seconds": 20, "action": "Restart"})
    world.advance(21)
    hang(world, WAITS, WAITS, WAITS, None)
    world.advance(2)
    hang(world, WAITS, WAITS, WAITS, SPINS)
    assert world.status is not None
    failure = world.status.failure
    assert failure is not None
    assert (failure.rank, failure.pod) == (3, "digits-a0-3")
    assert (
        "rank 3 (node 3, step 40) is in no collective operation; the others are waiting in the step" in failure.message
    )
    assert failure.traceback == f"rank 3 hangs in:\n{SPINS}"
    assert world.status.stacks is not None
    assert [(stack.attempt, stack.rank) for stack in world.status.stacks] == [(0, 3), (0, 0), (0, 1), (0, 2)]
    assert world.status.stacks[0].text == SPINS


def test_the_stacks_of_ranks_that_are_slow_to_report_are_kept_too() -> None:
    world = training(nodes=4, progressDeadline={"seconds": 20, "action": "Fail"})
    world.advance(21)
    # The rank that hangs has time to say so, those that wait for it are on a busy machine.
    world.report_rank(0, 39, since_step=27, activity=Activity.STEP, stack=SPINS)
    for rank in range(1, 4):
        world.report_rank(rank, 40, since_step=27, activity=Activity.STEP)
    world.settle()
    assert world.status is not None
    assert [stack.rank for stack in world.status.stacks or ()] == [0]
    world.advance(2)
    for rank in range(4):
        stack = WAITS if rank else SPINS
        world.report_rank(rank, 40 if rank else 39, since_step=29, activity=Activity.STEP, stack=stack)
    world.settle()
    assert world.status.phase is Phase.FAILED
    assert [stack.rank for stack in world.status.stacks or ()] == [0, 1, 2, 3]


def test_a_warning_names_the_rank_as_soon_as_the_stacks_are_there_and_is_not_written_again() -> None:
    world = training()
    world.advance(21)
    hang(world, None, None)
    assert "all ranks are waiting" in stalled(world)
    world.advance(6)
    hang(world, WAITS, SPINS)
    assert "rank 1 (node 1, step 40) is in no collective" in stalled(world)
    told = [event.message for event in world.events if event.reason == "TrainingStalled"]
    assert len(told) == 2
    assert "rank 1" in told[1]
    written = len(world.status_writes)
    for _ in range(5):
        world.advance(6)
        hang(world, WAITS, SPINS + "\n")
    assert len(world.status_writes) == written


def test_the_stacks_of_a_stall_are_hardly_written_any_more_while_it_lasts_and_the_culprits_change() -> None:
    world = training(nodes=8)
    world.advance(21)
    hang(world, *[None] * 8)
    stacks: list[float] = []
    begun, shown = world.now, None
    for look in range(600):
        world.advance(6)
        # Another rank at each look, and of more ranks than are kept.
        hang(world, *(SPINS if rank == look % 8 else WAITS for rank in range(8)))
        assert world.status is not None
        if world.status.stacks != shown:
            shown = world.status.stacks
            stacks.append((world.now - begun).total_seconds())
    assert len([seconds for seconds in stacks if seconds < 60]) > 3
    later = [round(seconds / 60) for seconds in stacks if seconds >= 60]
    assert set(later) <= {2, 4, 8, 16, 32}
    assert 0 < len(later) <= 10
    assert shown is not None
    assert shown[0].text == SPINS


@pytest.mark.parametrize("action", ["Restart", "Fail"])
def test_the_stacks_of_a_stall_outlive_its_pods_and_a_later_failure(action: str) -> None:
    world = training(progressDeadline={"seconds": 20, "action": action})
    world.advance(21)
    hang(world, WAITS, SPINS)
    world.advance(6)
    hang(world, WAITS, SPINS)
    world.kubelet_removes_deleted_pods()
    world.advance(30)
    world.settle()
    if action == "Restart":
        world.run_all()
        world.end("digits-a1-0", 1)
        world.settle()
    assert world.status is not None
    assert world.status.stacks is not None
    assert {stack.rank: stack.text for stack in world.status.stacks} == {0: WAITS, 1: SPINS}


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("/venv/torch/autograd/graph.py", True),
        ("/venv/torch/nn/parallel/distributed.py", True),
        ("/venv/torch/utils/data/dataloader.py", False),
        ("/job/train.py", False),
        ("C:\\venv\\torch\\cuda\\streams.py", True),
    ],
)
def test_the_innermost_call_shows_whether_a_rank_waits_for_others(code: str, waits: bool) -> None:  # noqa: FBT001 a column
    outer = 'File "/venv/torch/nn/parallel/distributed.py", line 1, in forward\n    self.module()\n'
    assert waits_for_others(f'{outer}File "{code}", line 2, in run\n') is waits
    assert waits_for_others(f'{outer}File "/job/train.py", line 2, in run\n    loss = total.item()\n') is True
    assert waits_for_others("") is None


def test_a_rank_that_has_finished_is_named_where_others_still_wait_for_it() -> None:
    world = training()
    stand_still(world, 21, (0, 40, "finished"), (1, 40, "step"))
    assert "rank 0 (node 0, step 40) has finished, the others are waiting at step 40" in stalled(world)


@pytest.mark.parametrize("ended", [0, 1])
def test_a_node_that_has_ended_well_is_named_where_another_still_waits_for_it(ended: int) -> None:
    world = training()
    world.end(f"digits-a0-{ended}", 0)
    world.settle()
    stand_still(world, 21, (1 - ended, 40, "step"))
    assert f"rank {ended} (node {ended}" in stalled(world)
    assert "has finished, the others are waiting at step 40" in stalled(world)


def read_step(world: World, step: int) -> None:
    """The operator reads a step of rank 0, and writes it."""
    world.progress = ProgressReport(0, Progress(step=step, observed_time=world.now), "0.4")
    world.advance(6)
    world.settle()


def test_a_hang_is_found_although_the_operator_was_restarted_while_rank_0_was_silent() -> None:
    world = training(procsPerNode=2)
    read_step(world, 41)
    # Also where the clock of this operator is behind that of the one before.
    world.take_over(-3600)
    polled = []
    for _ in range(40):
        world.advance(1)
        polled = world.reconcile().poll
        if len(polled) > 2:
            break
    assert [target.rank for target in polled][:4] == [0, 1, 2, 3]
    world.report_rank(1, 41, since_step=27, activity=Activity.STEP)
    world.settle()
    assert "ranks 0 (node 0), 2 (node 1), 3 (node 1) do not respond; the others are waiting at step 41" in stalled(
        world
    )


def test_after_a_takeover_rank_0_is_listened_to_before_all_ranks_are_polled() -> None:
    world = training(procsPerNode=2)
    read_step(world, 41)
    world.take_over(3600)
    plan = world.reconcile()
    # Rank 2 as node 1, which might still wait for node 0.
    assert [target.rank for target in plan.poll] == [0, 2]
    assert plan.requeue_after is not None
    assert plan.requeue_after <= timedelta(seconds=6)
    world.report_rank(0, 42)
    world.advance(6)
    assert [target.rank for target in world.reconcile().poll] == [0]
