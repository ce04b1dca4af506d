"""The life of a job as decide lets it happen, a sentence a test."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from world import START, World, spec_of, words

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.status import Progress
from ddpjob_core.children.actions import DeleteJob, DeletePod, DeleteStray
from ddpjob_core.children.launcher_config import launcher_config_name
from ddpjob_core.children.pod import build_pod
from ddpjob_core.decide import Plan, decide
from ddpjob_core.observations.node_lost import SILENCE, SILENCE_OF_LOST
from ddpjob_core.observations.observed import PodRecord, Rejection, RejectionKind, Waiting
from ddpjob_core.policies.success import OTHERS_END_WITHIN
from ddpjob_core.status.writes import NEWER_REPORT
from ddpjob_core.wire.progress import ProgressReport


def running_world(**fields: object) -> World:
    world = World(spec=spec_of(**fields))
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    return world


def test_a_new_job_gets_its_service_its_launcher_and_one_pod_a_node_before_any_status_is_written() -> None:
    world = World(spec=spec_of(nodes=3))
    plan = world.reconcile()
    assert plan.status is None
    assert words(plan.actions) == ["Create Service", "Create ConfigMap", *["Create Pod"] * 3]
    assert world.creations == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]


def test_under_mpirun_the_key_is_made_once_an_attempt_before_any_pod() -> None:
    world = World(spec=spec_of(nodes=2, launcher="mpirun"))
    plan = world.reconcile()
    kinds = words(plan.actions)
    assert kinds == ["Create Service", "Create ConfigMap", "Create Secret", "Create Pod", "Create Pod"]
    world.settle()
    assert words(world.requests).count("Create Secret") == 1


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


def test_a_job_that_succeeds_costs_one_write_a_child_and_two_status_writes() -> None:
    world = World(spec=spec_of(nodes=4))
    world.settle()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert len(world.requests) == 4 + 2
    assert len(world.status_writes) == 2
    assert world.status is not None
    assert world.status.phase is Phase.SUCCEEDED


def test_at_most_three_events_tell_of_a_job_that_succeeds() -> None:
    world = running_world()
    world.progress = ProgressReport(0, Progress(step=1, total_steps=10), "0.5")
    world.advance(6)
    world.settle()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert [event.reason for event in world.events] == ["PodsCreated", "Training", "Succeeded"]


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


def test_a_change_that_is_no_transition_waits_until_five_seconds_after_the_last_write() -> None:
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


def test_a_failed_node_ends_the_attempt_as_a_whole_and_the_next_one_starts() -> None:
    world = running_world()
    world.end("digits-a0-1", 7)
    plan = world.reconcile()
    assert plan.urgent
    assert world.status is not None
    assert (world.status.attempt, world.status.pods_created, world.status.restarts.counted) == (1, False, 1)
    assert world.status.failure is not None
    assert (world.status.failure.pod, world.status.failure.exit_code) == ("digits-a0-1", 7)
    assert world.status.phase is Phase.RESTARTING
    world.settle()
    assert world.pods["digits-a0-0"].deletion_time is not None
    assert "digits-a1-0" not in world.pods
    world.kubelet_removes_deleted_pods()
    world.advance(1)
    world.settle()
    assert {"digits-a1-0", "digits-a1-1"} <= set(world.pods)
    assert "digits-a0-1" in world.pods, "the pod that failed stays, so that its log can be read"


def test_the_intent_to_leave_an_attempt_is_written_before_a_pod_of_it_is_deleted() -> None:
    world = running_world()
    world.end("digits-a0-1", 7)
    plan = world.reconcile()
    assert plan.status is not None
    assert plan.status.attempt == 1
    assert not [action for action in plan.actions if isinstance(action, DeletePod)]


def test_the_budget_of_restarts_is_used_exactly() -> None:
    world = running_world(restart={"maxRestarts": 2})
    for attempt in range(3):
        world.end(f"digits-a{attempt}-0", 1)
        world.settle()
        world.kubelet_removes_deleted_pods()
        world.advance(120)
        world.settle()
        world.run_all()
    assert world.status is not None
    assert world.status.phase is Phase.FAILED
    assert world.status.restarts.counted == 2
    assert world.status.attempt == 2
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == "MaxRestartsExceeded"
    assert len(world.creations) == 6


def test_failures_in_a_row_double_the_wait() -> None:
    world = running_world(restart={"maxRestarts": 10})
    waits = []
    for attempt in range(8):
        world.end(f"digits-a{attempt}-0", 1)
        world.end(f"digits-a{attempt}-1", 1)
        world.settle()
        waited = 0
        while f"digits-a{attempt + 1}-0" not in world.pods:
            world.advance(1)
            waited += 1
            world.settle()
        waits.append(waited)
        world.run_all()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_missing_pod_is_made_before_all_were_made_and_is_a_failure_after() -> None:
    world = World(spec=spec_of(nodes=3))
    world.reconcile(crash_after=3)
    assert world.creations == ["digits-a0-0"]
    world.settle()
    assert world.creations == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]
    del world.pods["digits-a0-1"]
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "PodMissing"


def test_a_pod_that_lost_its_label_is_deleted_by_name() -> None:
    world = running_world()
    del world.pods["digits-a0-1"]
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(1)
    world.settle()
    assert DeleteStray("digits-a0-1", 1) in world.requests
    assert words(world.requests[-4:]) == [
        "DeleteStray",
        "Create ConfigMap",
        "Create Pod",
        "Create Pod",
    ]


def test_a_pod_that_somebody_deletes_has_failed_at_once() -> None:
    world = running_world()
    world.delete_pod("digits-a0-0")
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "PodDeleted"


def test_a_pod_that_its_node_takes_no_notice_of_ends_the_attempt_once_new_pods_are_kept_away_from_that_node() -> None:
    world = running_world()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], phase="Pending", trainer=None, ready=False)
    world.assign("digits-a0-1")
    world.settle()
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= SILENCE
    world.advance(SILENCE.total_seconds() - 1)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 0
    world.advance(1)
    world.settle()
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
    assert world.status.failure is not None
    assert (world.status.failure.reason, world.status.failure.failure_class) == ("NodeLost", "PodLost")


def test_a_pod_on_a_lost_node_does_not_block_the_next_attempt() -> None:
    world = running_world()
    world.end("digits-a0-1", 1)
    world.settle()
    world.advance(3)
    world.settle()
    assert "digits-a1-0" not in world.pods
    world.advance(SILENCE.total_seconds() - 3 + 1)
    world.settle()
    assert "digits-a1-0" in world.pods


def test_pods_of_older_attempts_are_kept_for_three_attempts_only() -> None:
    world = running_world(restart={"maxRestarts": 10}, nodes=3)
    for attempt in range(6):
        for ordinal in range(3):
            world.end(f"digits-a{attempt}-{ordinal}", 1 if ordinal == 1 else 0)
        world.settle()
        world.advance(120)
        world.settle()
        world.run_all()
    assert sorted(world.pods) == [
        *(f"digits-a{attempt}-{ordinal}" for attempt in (3, 4, 5) for ordinal in (0, 1)),
        *(f"digits-a6-{ordinal}" for ordinal in range(3)),
    ]


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


def test_a_pod_on_a_lost_node_does_not_keep_a_job_from_being_suspended() -> None:
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


def test_a_template_that_cannot_work_fails_the_job_and_names_the_field() -> None:
    world = World(
        spec=spec_of(template={"spec": {"containers": [{"name": "trainer", "env": [{"name": "RANK", "value": "0"}]}]}})
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == "InvalidSpec"
    assert "spec.template.spec.containers[0].env[RANK]" in failed.message
    assert not world.pods


def test_a_pod_that_the_server_calls_invalid_fails_the_job_with_the_servers_words() -> None:
    world = World()
    world.rejections = (
        Rejection(RejectionKind.INVALID, ObjectName("Pod", "digits-a0-0"), 'unknown field "spec.volums"'),
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert 'unknown field "spec.volums"' in failed.message


def test_a_request_that_comes_to_too_many_processes_is_refused_before_anything_is_built() -> None:
    resources = {"requests": {"cpu": "64Gi"}}
    world = World(
        spec=spec_of(procsPerNode="auto", trainer={"image": "i", "script": "t.py", "resources": resources}),
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message.startswith("spec.procsPerNode: auto results in more than 256")
    assert not world.pods


def gpus(number: int) -> dict[str, object]:
    return {"image": "i", "script": "t.py", "resources": {"limits": {"nvidia.com/gpu": str(number)}}}


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({}, "gloo"),
        ({"trainer": gpus(2)}, "nccl"),
        ({"trainer": gpus(2), "backend": "gloo"}, "gloo"),
        ({"trainer": gpus(2), "backend": "nccl"}, "nccl"),
        ({"trainer": gpus(0)}, "gloo"),
        ({"backend": "nccl", "template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}, "nccl"),
    ],
)
def test_the_backend_follows_the_gpus_unless_it_is_asked_for(fields: dict[str, object], backend: str) -> None:
    world = World(spec=spec_of(**fields))
    world.settle()
    assert world.status is not None
    assert world.status.backend == backend
    pod = build_pod(world.observe().job, world.spec, 0, 0)
    assert {"name": "DDPJOB_BACKEND", "value": backend} in pod["spec"]["containers"][0]["env"]


def test_nccl_without_gpus_is_refused_before_anything_is_built() -> None:
    world = World(spec=spec_of(backend="nccl"))
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message[:28]) == ("InvalidSpec", "spec.backend: nccl needs GPU")
    assert not world.pods


def test_a_consequence_waits_a_little_for_its_cause() -> None:
    world = running_world()
    lost = {"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed by peer"}]}
    killed = {"exitCode": 137, "failures": [{"rank": 1, "signal": "SIGKILL", "time": 9, "message": ""}]}
    world.end("digits-a0-0", 1, json.dumps(lost))
    plan = world.reconcile()
    assert plan.requeue_after == timedelta(seconds=5)
    assert world.status is not None
    assert world.status.attempt == 0
    world.end("digits-a0-1", 137, json.dumps(killed))
    world.reconcile()
    assert world.status.failure is not None
    assert (world.status.failure.rank, world.status.failure.reason) == (1, "Signal")


def test_a_job_that_fails_for_good_waits_longer_for_the_cause() -> None:
    world = running_world(restart={"maxRestarts": 0})
    lost = {"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed by peer"}]}
    raised = {"exitCode": 1, "failures": [{"rank": 1, "exitCode": 1, "time": 9, "message": "ValueError: bad batch"}]}
    world.end("digits-a0-0", 1, json.dumps(lost))
    world.advance(15)
    assert world.reconcile().requeue_after == timedelta(seconds=5)
    world.end("digits-a0-1", 1, json.dumps(raised))
    world.reconcile()
    assert world.status is not None
    assert world.status.failure is not None
    assert world.status.failure.rank == 1
    assert world.status.holds(ConditionType.FAILED)


def test_a_job_that_fails_for_good_does_not_wait_for_ever_for_the_cause() -> None:
    world = running_world(restart={"maxRestarts": 0})
    lost = {"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed by peer"}]}
    world.end("digits-a0-0", 1, json.dumps(lost))
    world.advance(20)
    world.reconcile()
    assert world.status is not None
    assert world.status.holds(ConditionType.FAILED)


def test_a_consequence_whose_cause_never_shows_is_told_after_a_little() -> None:
    world = running_world()
    lost = {"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed by peer"}]}
    world.end("digits-a0-0", 1, json.dumps(lost))
    world.reconcile()
    world.advance(5)
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "ConnectionLost"


def test_a_spec_that_was_edited_in_a_suspension_nobody_saw_is_the_next_attempt_and_not_counted() -> None:
    world = running_world(nodes=2)
    world.crash()
    world.spec = world.spec.model_copy(update={"nodes": 1})
    world.end("digits-a0-0", 0)
    world.settle()
    assert world.status is not None
    assert not world.status.holds(ConditionType.SUCCEEDED), "one of two nodes is no success"
    assert (world.status.attempt, world.status.restarts.counted) == (1, 0)
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.live() == ["digits-a1-0"]


def test_a_number_of_nodes_that_changes_the_pods_names_is_no_failure_either() -> None:
    world = running_world(nodes=2)
    world.crash()
    world.spec = world.spec.model_copy(update={"nodes": 12})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted) == (1, 0)
    assert len(world.live()) == 12


@pytest.mark.parametrize("field", [{"ttl_seconds_after_finished": 60}, {"clean_pod_policy": "All"}])
def test_a_field_that_no_pod_is_made_of_leaves_the_pods_alone(field: dict[str, object]) -> None:
    world = running_world()
    world.spec = world.spec.model_copy(update=field)
    plan = world.reconcile()
    assert plan.actions == ()
    assert world.status is not None
    assert world.status.attempt == 0


def test_a_pod_of_an_operator_that_told_no_hash_goes_on() -> None:
    world = running_world()
    world.pods = {name: replace(pod, spec_hash=None) for name, pod in world.pods.items()}
    assert world.reconcile().actions == ()


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


def test_a_pod_without_its_label_is_deleted_when_the_job_fails_for_good_or_is_suspended() -> None:
    for change in ({"restart": {"maxRestarts": 0}}, {"suspend": True}):
        world = running_world()
        world.spec = spec_of(**change)
        del world.pods["digits-a0-1"]
        world.settle()
        assert DeleteStray("digits-a0-1") in world.requests


def test_a_finished_job_tells_that_a_changed_spec_was_seen() -> None:
    world = running_world()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    world.advance(6)
    observed = world.observe()
    plan = decide(replace(observed, job=replace(observed.job, generation=2)))
    assert plan.status is not None
    assert plan.status.observed_generation == 2
    assert plan.events == ()


def test_a_used_up_quota_is_told_and_asked_again_with_one_pod_only() -> None:
    world = World(spec=spec_of(nodes=5))
    world.rejections = (Rejection(RejectionKind.FORBIDDEN, ObjectName("Pod", "digits-a0-0"), "exceeded quota"),)
    plan = world.reconcile()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert (told.status, told.reason) == ("False", "Forbidden")
    assert "exceeded quota" in told.message
    assert words(plan.actions).count("Create Pod") == 1
    assert plan.requeue_after == timedelta(seconds=10)


def test_pods_that_are_refused_alike_are_named_together_with_the_first_message() -> None:
    names = [ObjectName("Pod", f"digits-a0-{ordinal}") for ordinal in range(2)]
    refused = [Rejection(RejectionKind.FORBIDDEN, name, f'pods "{name.name}" is forbidden: quota') for name in names]
    plan = World(rejections=tuple(refused)).reconcile()
    assert plan.status is not None
    shown = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert shown is not None
    assert shown.message == (
        'the API server refuses to create pod digits-a0-0, pod digits-a0-1 (2): pods "digits-a0-0" is forbidden: quota'
    )


def test_no_pod_is_made_while_the_launchers_name_is_taken() -> None:
    world = World()
    world.rejections = (
        Rejection(
            RejectionKind.NAME_TAKEN,
            ObjectName("ConfigMap", launcher_config_name("digits", Launcher.TORCHRUN)),
            "it belongs to somebody",
        ),
    )
    plan = world.reconcile()
    assert words(plan.actions) == ["Create ConfigMap"]


def test_all_that_is_refused_is_named_in_whatever_order_the_answers_came() -> None:
    names = (ObjectName("Service", "d"), ObjectName("ConfigMap", "d"))
    refused = [Rejection(RejectionKind.NAME_TAKEN, name, "it is another's") for name in names]
    messages = set()
    for rejections in (refused, refused[::-1]):
        world = World(rejections=tuple(rejections))
        plan = world.reconcile()
        assert plan.status is not None
        told = plan.status.condition(ConditionType.PODS_SCHEDULED)
        assert told is not None
        messages.add(told.message)
    assert messages == {"the API server refuses to create configmap d, service d (2): it is another's"}


def test_a_name_that_is_taken_is_waited_for_and_named() -> None:
    world = World(foreign={ObjectName("Pod", "digits-a0-1"): "DDPJob digits (uid older)"})
    plan = world.reconcile()
    assert plan.actions == ()
    assert plan.status is not None
    told = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert told.reason == "NameTaken"
    assert "pod digits-a0-1" in told.message
    world.foreign = {}
    world.settle()
    assert len(world.pods) == 2


def test_ranks_that_stop_after_their_job_has_failed_still_tell_their_last_step_and_checkpoint() -> None:
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
    # Another pod's state is no progress: it does not wait for a report.
    world.advance(1)
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], ready=False, trainer=Waiting("CrashLoopBackOff", ""))
    plan = world.reconcile()
    assert (plan.status, plan.requeue_after) == (None, timedelta(seconds=4))


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


def test_time_to_live_counts_from_completion_and_deletes_the_job() -> None:
    world = running_world(ttlSecondsAfterFinished=60)
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    plan = world.reconcile()
    assert plan.requeue_after == timedelta(seconds=60)
    world.advance(59)
    assert not world.reconcile().actions
    world.advance(1)
    assert world.reconcile().actions == (DeleteJob("job-uid"),)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("None", {"digits-a0-0", "digits-a0-1"}), ("Running", {"digits-a0-0"}), ("All", set())],
)
def test_clean_pod_policy_tells_which_pods_go_when_the_job_has_finished(policy: str, kept: set[str]) -> None:
    world = running_world(cleanPodPolicy=policy, restart={"maxRestarts": 0})
    world.end("digits-a0-0", 1)
    world.settle()
    world.advance(5)
    world.settle()
    world.kubelet_removes_deleted_pods()
    assert set(world.pods) == kept


def test_a_job_that_fails_for_good_waits_a_moment_for_what_else_failed_because_of_it() -> None:
    world = running_world(restart={"maxRestarts": 0})
    world.end("digits-a0-1", 137, '{"exitCode":137,"failures":[{"rank":1,"signal":"SIGKILL","time":2.0}]}')
    world.settle()
    assert world.status is not None
    assert not world.status.finished
    lost = "RuntimeError: Connection closed by peer"
    world.end("digits-a0-0", 1, json.dumps({"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "message": lost}]}))
    world.settle()
    assert world.status.finished
    assert world.status.failure is not None
    assert world.status.failure.consequences == [f"rank 0: ConnectionLost: exited with code 1: {lost}"]


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


def test_an_image_that_cannot_be_pulled_is_named_with_what_to_check() -> None:
    world = World()
    world.settle()
    world.run("digits-a0-0")
    world.pods["digits-a0-1"] = replace(
        world.pods["digits-a0-1"], scheduled=True, trainer=Waiting("ImagePullBackOff", 'Back-off pulling image "i"')
    )
    world.advance(6)
    world.settle()
    assert world.status is not None
    ready = world.status.condition(ConditionType.RENDEZVOUS_READY)
    assert ready is not None
    assert ready.reason == "ImagePullBackOff"
    assert ready.message == (
        '1/2 nodes are up; digits-a0-1: ImagePullBackOff: Back-off pulling image "i": '
        "check spec.trainer.image and that the nodes can pull it"
    )


def test_what_the_scheduler_says_of_several_pods_is_said_once() -> None:
    world = World(spec=spec_of(nodes=3))
    world.settle()
    full = Waiting("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu")
    for name in ("digits-a0-0", "digits-a0-2"):
        world.pods[name] = replace(world.pods[name], obstacle=full)
    world.advance(6)
    world.settle()
    assert world.status is not None
    scheduled = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert scheduled is not None
    assert scheduled.message == (
        "0/3 pods have a node; pods digits-a0-0, digits-a0-2 (2): Unschedulable: 0/3 nodes are available: "
        "3 Insufficient cpu: check spec.trainer.resources, nodeSelector and tolerations against kubectl get nodes; "
        "digits-a0-1: waiting for a node"
    )


def test_the_next_attempt_prefers_other_nodes_and_does_not_wait_long_on_one_that_is_known_to_be_lost() -> None:
    world = World()
    world.settle()
    world.run_all()
    world.settle()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], node_name="node-2", node_lost=True)
    world.settle()
    world.remove("digits-a0-0")
    world.advance(5)
    world.settle()
    created = [action.manifest for action in world.requests if words([action]) == ["Create Pod"]][-2:]
    assert [manifest["metadata"]["name"] for manifest in created] == ["digits-a1-0", "digits-a1-1"]
    for manifest in created:
        (wish,) = manifest["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert wish["preference"]["matchFields"] == [
            {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
        ]
    world.run("digits-a1-0")
    world.assign("digits-a1-1", "node-2")
    plan = world.reconcile()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= SILENCE_OF_LOST
    world.advance(SILENCE_OF_LOST.total_seconds() - 1)
    world.settle()
    assert world.status is not None
    assert world.status.attempt == 1
    world.advance(1)
    world.settle()
    assert world.status.attempt == 2


def test_only_a_running_first_node_is_asked_for_progress() -> None:
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
