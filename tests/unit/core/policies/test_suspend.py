"""spec.suspend."""

from dataclasses import replace

import pytest
from world import World, running_world, spec_of

from ddpjob_core.api import Phase
from ddpjob_core.api.status import Progress
from ddpjob_core.children.actions import DeleteStray
from ddpjob_core.observations.node_lost import SILENCE
from ddpjob_core.wire.progress import ProgressReport


def test_suspending_deletes_the_pods_and_is_never_a_failure() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDING
    world.end("digits-a0-0", 143)
    world.settle()
    assert world.status.phase is Phase.SUSPENDING
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status.phase is Phase.SUSPENDED
    assert world.status.restarts.counted == 0


def test_what_a_suspended_attempt_has_reached_ends_a_run_of_failures() -> None:
    world = running_world(restart={"maxRestarts": 9})
    _fail_a_node(world)
    world.run_all()
    assert world.status is not None
    assert (world.status.restarts.in_a_row, world.status.restarts.without_progress) == (1, 1)
    world.progress = ProgressReport(1, Progress(step=10_000, last_checkpoint_step=9_000), "0.5")
    world.advance(6)
    world.settle()
    _suspend_and_resume(world)
    restarts = world.status.restarts
    assert (restarts.in_a_row, restarts.without_progress) == (0, 0)
    assert (restarts.last_furthest_step, restarts.last_checkpoint_step) == (9_000, 9_000)


@pytest.mark.parametrize("saved", [None, 210])
def test_the_attempt_after_a_resume_or_a_failure_has_no_loss_and_no_speed_until_it_reports(saved: int | None) -> None:
    for interrupt in (_suspend_and_resume, _fail_a_node):
        world = running_world()
        told = Progress(
            attempt=0,
            epoch=7,
            total_epochs=20,
            step=210,
            total_steps=600,
            loss=0.5,
            samples_per_second=9.0,
            eta_seconds=60,
            last_checkpoint_step=saved,
        )
        world.progress = ProgressReport(0, told, "0.5")
        world.advance(6)
        world.settle()
        assert world.status is not None
        assert (world.status.summary.loss, world.status.summary.eta) == ("0.5", "1m")
        interrupt(world)
        world.run_all()
        world.advance(6)
        world.settle()
        assert (world.status.attempt, world.status.phase) == (1, Phase.RUNNING)
        shown, progress = world.status.summary, world.status.progress
        assert (shown.loss, shown.eta, shown.speed) == ("", "", "")
        assert (shown.epoch, shown.step) == (("7/20", "210/600") if saved else ("", ""))
        assert progress is not None
        assert (progress.attempt, progress.loss, progress.samples_per_second, progress.eta_seconds) == (0, *[None] * 3)
        world.progress = ProgressReport(1, told.model_copy(update={"step": 211, "loss": None}), "")
        world.advance(6)
        world.settle()
        assert (world.status.summary.step, world.status.summary.loss) == ("211/600", "")


def _suspend_and_resume(world: World) -> None:
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    for name in list(world.pods):
        world.end(name, 143)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.spec = world.spec.model_copy(update={"suspend": False})
    world.settle()


def _fail_a_node(world: World) -> None:
    world.end("digits-a0-1", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(2)
    world.settle()


@pytest.mark.parametrize("code", [0, 143, 1])
def test_nodes_that_end_because_they_were_asked_to_have_neither_failed_nor_succeeded(code: int) -> None:
    world = running_world()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.end("digits-a0-1", code)
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert world.status.nodes is not None
    assert (world.status.phase, world.status.nodes.failed, world.status.nodes.succeeded) == (Phase.SUSPENDING, 0, 0)
    world.end("digits-a0-0", code)
    world.settle()
    world.advance(6)
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert (world.status.phase, world.status.summary.nodes) == (Phase.SUSPENDED, "0/2")
    assert (world.status.nodes.failed, world.status.nodes.succeeded) == (0, 0)


def test_a_pod_on_a_lost_node_does_not_block_a_suspension() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    world.advance(30 + SILENCE.total_seconds() - 1)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDING
    for name, pod in world.pods.items():
        world.pods[name] = replace(pod, node_lost=True)
    world.settle()
    assert world.status.phase is Phase.SUSPENDED
    assert len(world.pods) == 2


def test_resuming_is_the_next_attempt_and_not_counted() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.spec = spec_of(suspend=False)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted, world.status.pods_created) == (1, 0, True)
    assert sorted(world.pods) == ["digits-a1-0", "digits-a1-1"]


def test_a_job_resumed_while_it_is_still_stopping_waits_for_the_old_pods() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    world.spec = spec_of(suspend=False)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 1
    assert "digits-a1-0" not in world.pods
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert "digits-a1-0" in world.pods
    assert world.status.restarts.counted == 0


def test_a_job_that_starts_suspended_has_no_pods_and_begins_with_attempt_0() -> None:
    world = World(spec=spec_of(suspend=True))
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDED
    assert not world.requests
    world.spec = spec_of()
    world.settle()
    assert sorted(world.pods) == ["digits-a0-0", "digits-a0-1"]


def test_nodes_changed_while_suspended_count_from_the_next_attempt_on() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    world.spec = spec_of(nodes=11)
    world.settle()
    assert min(world.pods) == "digits-a1-00"
    assert len(world.pods) == 11


def test_a_pod_without_its_label_is_deleted_when_the_job_fails_for_good_or_is_suspended() -> None:
    for change in ({"restart": {"maxRestarts": 0}}, {"suspend": True}):
        world = running_world()
        world.spec = spec_of(**change)
        del world.pods["digits-a0-1"]
        world.settle()
        assert DeleteStray("digits-a0-1") in world.requests


def test_a_suspended_job_stays_so_when_another_operator_sees_the_pod_of_a_lost_node() -> None:
    world = running_world()
    world.spec = spec_of(suspend=True)
    world.settle()
    world.advance(90)
    world.settle()
    assert world.status is not None
    assert world.status.phase is Phase.SUSPENDED
    world.take_over(0)
    world.settle()
    assert world.status.phase is Phase.SUSPENDED
