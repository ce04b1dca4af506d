"""The life of a job as decide lets it happen, a sentence a test."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from world import START, World, running_world

from ddpjob_core.api.status import Progress
from ddpjob_core.decide import Plan, decide
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.wire.progress import ProgressReport


def test_the_last_progress_comes_from_the_termination_message_of_the_first_node() -> None:
    world = running_world()
    world.progress = ProgressReport(0, Progress(step=3, total_steps=10), "0.5")
    report = {"exitCode": 0, "progress": {"epoch": 2, "totalEpochs": 2, "step": 10, "totalSteps": 10, "loss": 0.01}}
    world.end("digits-a0-0", 0, json.dumps(report))
    world.end("digits-a0-1", 0)
    world.settle()
    assert world.status is not None
    assert world.status.progress is not None
    assert (world.status.progress.step, world.status.progress.percent) == (10, 100)
    assert (world.status.summary.step, world.status.summary.loss, world.status.summary.eta) == ("10/10", "0.01", "")


def test_an_erased_status_is_rebuilt_from_the_newest_attempt_that_has_pods() -> None:
    world = running_world()
    world.end("digits-a0-1", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(5)
    world.settle()
    world.run_all()
    world.status = None
    created = list(world.creations)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.pods_created) == (1, True)
    assert world.creations == created


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    world = World()
    observed = world.observe()
    assert decide(replace(observed, job=replace(observed.job, deleting=True))) == Plan()


def test_only_a_running_first_node_is_polled_for_progress() -> None:
    world = World()
    world.settle()
    assert world.reconcile().poll == ()
    world.run("digits-a0-0")
    (target,) = world.reconcile().poll
    assert (target.attempt, target.address, target.port) == (0, "10.0.0.1", 9401)


def test_pods_that_are_not_this_job_s_are_not_counted() -> None:
    world = World()
    world.pods["digits-tool"] = PodRecord(
        "default", "digits-tool", "u", "1", "job-uid", "digits", None, None, "Running"
    )
    world.settle()
    assert world.creations == ["digits-a0-0", "digits-a0-1"]
    assert world.status_writes[0].start_time == START


def test_what_is_due_within_a_second_is_not_slept_through() -> None:
    world = running_world(nodes=1)
    pod, seen = world.pods["digits-a0-0"], world.now + timedelta(seconds=0.5)
    world.pods["digits-a0-0"] = replace(pod, phase="Pending", trainer=None, unadmitted_since=seen)
    for _ in range(5):
        world.now += world.reconcile().requeue_after or timedelta()
    assert world.status is not None
    assert world.status.attempt == 1


@pytest.mark.parametrize("writes", range(6))
def test_a_new_leader_has_a_status_accepted_before_it_does_anything_to_a_job_of_another_leader(writes: int) -> None:
    world = World()
    world.reconcile(crash_after=writes)
    plan = decide(world.observe())
    assert plan.actions
    assert plan.status is not None
    assert plan.urgent


def test_it_writes_the_status_of_its_predecessor_again_where_nothing_has_changed() -> None:
    world = running_world()
    world.end("digits-a0-1", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(5)
    world.reconcile(crash_after=1)
    plan = decide(world.observe())
    assert plan.actions
    assert plan.status == world.status
    assert not plan.events


def test_a_leader_of_its_own_jobs_and_one_that_has_nothing_to_do_write_no_status_for_it() -> None:
    world = World()
    plan = world.reconcile()
    assert plan.actions
    assert plan.status is None
    world = running_world()
    world.take_over(0)
    writes = len(world.status_writes)
    world.settle()
    assert len(world.status_writes) == writes
