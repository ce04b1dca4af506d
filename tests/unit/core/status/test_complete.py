"""What the status says besides a decision."""

from dataclasses import replace

from world import running_world

from ddpjob_core.api import Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.decide import decide
from ddpjob_core.wire.progress import ProgressReport


def test_a_finished_job_shows_that_a_changed_spec_was_seen() -> None:
    world = running_world()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    world.advance(6)
    observed = world.observe()
    plan = decide(replace(observed, job=replace(observed.job, generation=2)))
    assert plan.status is not None
    assert plan.status.observed_generation == 2
    assert [event.reason for event in plan.events] == ["Edited"]


def test_ranks_that_stop_after_their_job_has_failed_still_report_their_last_step_and_checkpoint() -> None:
    world = running_world(activeDeadlineSeconds=60)
    world.progress = ProgressReport(0, Progress(step=40, last_checkpoint_step=40), "0.5")
    world.settle()
    world.advance(60)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.FAILED
    world.progress = ProgressReport(0, Progress(step=47, last_checkpoint_step=47), "0.4")
    world.advance(6)
    world.settle()
    assert world.status.progress is not None
    assert (world.status.progress.step, world.status.progress.last_checkpoint_step) == (47, 47)
    assert (world.status.summary.step, world.status.summary.loss) == ("47", "0.4")
    world.progress = ProgressReport(0, Progress(step=12), "9")
    world.advance(6)
    plan = world.reconcile()
    assert plan.status is None


def test_a_finished_job_keeps_its_status_when_its_pods_go() -> None:
    world = running_world()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    before = world.status
    world.pods.clear()
    world.advance(60)
    world.settle()
    assert world.status == before


def test_what_auto_comes_to_does_not_change_under_running_pods_when_another_version_of_the_operator_goes_on() -> None:
    world = running_world(procsPerNode="auto")
    assert world.status is not None
    world.status = world.status.model_copy(update={"procs_per_node": 2, "backend": "nccl"})
    world.advance(6)
    world.take_over(0)
    assert world.reconcile().status is None
    for name in list(world.pods):
        world.end(name, 1)
    world.settle()
    assert (world.status.attempt, world.status.procs_per_node, world.status.backend) == (1, 1, "gloo")
