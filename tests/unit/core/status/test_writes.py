"""When a status is written, and when not."""

from dataclasses import replace
from datetime import timedelta

from world import World, running_world, spec_of

from ddpjob_core.api import Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.observations.observed import Waiting
from ddpjob_core.status.writes import NEWER_REPORT
from ddpjob_core.wire.progress import ProgressReport


def test_a_job_that_succeeds_costs_one_write_per_child_and_two_status_writes() -> None:
    world = World(spec=spec_of(nodes=4))
    world.settle()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert len(world.requests) == 4 + 2
    assert len(world.status_writes) == 2
    assert world.status is not None
    assert world.status.phase is Phase.SUCCEEDED


def test_nothing_is_written_when_nothing_changes() -> None:
    world = running_world()
    written = len(world.status_writes)
    for _ in range(100):
        world.advance(60)
        plan = world.reconcile()
        assert plan.status is None
        assert plan.actions == ()
    assert len(world.status_writes) == written


def test_an_operator_that_starts_again_writes_nothing_to_an_unchanged_job() -> None:
    world = running_world()
    world.crash()
    plan = world.reconcile()
    assert plan.status is None
    assert plan.actions == ()


def test_a_change_other_than_a_transition_waits_until_five_seconds_after_the_last_write() -> None:
    world = World()
    world.settle()
    world.run_all()
    world.advance(1)
    plan = world.reconcile()
    assert plan.status is None
    assert plan.requeue_after == timedelta(seconds=4)
    world.advance(4)
    world.reconcile()
    assert world.status is not None
    assert world.status.phase is Phase.RUNNING


def test_progress_that_was_only_read_again_is_not_written() -> None:
    world = running_world()
    world.progress = ProgressReport(0, Progress(step=3, observed_time=world.now), "0.5")
    world.advance(6)
    world.settle()
    written = len(world.status_writes)
    world.progress = ProgressReport(0, Progress(step=3, observed_time=world.now), "0.5")
    world.advance(6)
    world.settle()
    assert len(world.status_writes) == written


def test_progress_that_may_be_written_waits_for_the_next_report_and_no_other_news_does() -> None:
    world = running_world()
    world.progress = ProgressReport(0, Progress(step=1, total_steps=9), "0.5")
    world.advance(5)
    world.settle()
    world.progress = ProgressReport(0, Progress(step=2, total_steps=9), "0.4")
    world.advance(2)
    plan = world.reconcile()
    assert (plan.status, plan.requeue_after) == (None, timedelta(seconds=3) + NEWER_REPORT)
    world.advance(3)
    # The poll that comes then brings the job here again.
    world.progress = ProgressReport(0, Progress(step=5, total_steps=9), "0.3")
    written = world.reconcile().status
    assert written is not None
    assert written.summary.step == "5/9"
    world.settle()
    # Another pod's state is not progress: it does not wait for a report.
    world.advance(1)
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], ready=False, trainer=Waiting("CrashLoopBackOff", ""))
    plan = world.reconcile()
    assert (plan.status, plan.requeue_after) == (None, timedelta(seconds=4))
