"""spec.restart: what follows which failure, and how restarts are counted."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from world import World, running_world, spec_of

from ddpjob_core.api import ConditionType, Phase
from ddpjob_core.api.status import Failure, Progress
from ddpjob_core.children.actions import DeletePod
from ddpjob_core.observations.node_lost import SILENCE
from ddpjob_core.observations.root_cause import POD_MISSING
from ddpjob_core.wire.progress import ProgressReport


def crash(world: World, step: int | None = None, code: int = 1) -> None:
    """The current attempt trains to a step, then its first node fails; the operator looks until the next one runs."""
    assert world.status is not None
    attempt = world.status.attempt
    if step is not None:
        world.progress = ProgressReport(attempt, Progress(step=step), "0.5")
    world.end(f"digits-a{attempt}-0", code)
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.advance(400)
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()


def started(**restart: Any) -> World:
    world = World(spec=spec_of(restart=restart))
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    return world


def test_a_job_that_makes_no_newer_step_fails_before_its_budget_is_used() -> None:
    world = started(maxRestarts=100, noProgressLimit=2)
    for _ in range(3):
        crash(world, step=50)
    assert world.status is not None
    condition = world.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == "NoProgress"
    assert "noProgressLimit: no step beyond 50 in 2 restarts" in condition.message
    assert world.status.restarts.counted == 2


def test_a_job_that_makes_newer_steps_continues() -> None:
    world = started(maxRestarts=100, noProgressLimit=2)
    for step in range(50, 500, 50):
        crash(world, step=step)
    assert world.status is not None
    assert not world.status.finished
    assert (world.status.restarts.counted, world.status.restarts.furthest_step) == (9, 450)


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_job_whose_pod_failed_before_all_were_seen_has_started_all_the_same(restarts: int) -> None:
    world = World(spec=spec_of(restart={"maxRestarts": restarts}))
    while len(world.pods) < 2:
        world.reconcile()
    assert world.status is None or not world.status.pods_created
    created = world.now
    world.end("digits-a0-0", 7)
    for _ in range(3):
        world.advance(1)
        world.settle()
    assert world.status is not None
    assert world.status.finished == (restarts == 0)
    assert world.status.start_time is not None
    assert world.status.start_time - created <= timedelta(seconds=2)


def test_a_program_that_reports_no_step_has_only_its_budget() -> None:
    world = started(maxRestarts=6, noProgressLimit=1)
    for _ in range(6):
        crash(world)
    assert world.status is not None
    assert not world.status.finished
    crash(world)
    condition = world.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == "MaxRestartsExceeded"


def test_a_rule_that_says_fail_ends_the_job_immediately() -> None:
    world = started(rules=[{"action": "Fail", "exitCodes": [42]}])
    crash(world, code=42)
    assert world.status is not None
    condition = world.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == "FailedByRule"
    assert world.status.restarts.counted == 0


NO_PROGRAM = {"exitCode": 1, "message": "script gone.py not found in /work", "permanent": True}


NOT_IN_PATH = 'exec: "python3": executable file not found in $PATH: unknown'


@pytest.mark.parametrize(
    ("report", "reason", "fails"),
    [
        ({"exitCode": 1, "failures": [NO_PROGRAM]}, "Error", True),
        ({"exitCode": 1, "failures": [{**NO_PROGRAM, "permanent": False}]}, "Error", False),
        (f"failed to create containerd task: {NOT_IN_PATH}", "StartError", True),
        ('exec: "/no/such": stat /no/such: no such file or directory', "StartError", True),
        ("exec: no such file or directory", "Error", False),
        ("runc create failed: exec /bin/train: exec format error", "StartError", True),
        ("crun: executable file `train` not found in $PATH: No such file or directory", "StartError", True),
        ('exec: "/work": is a directory', "StartError", True),
        ("failed to write to cgroup.procs: device busy", "StartError", False),
        ("cgroup.procs: no such file or directory", "StartError", False),
        ("nvidia-container-cli: libnvidia-ml.so.1: cannot open: no such file or directory", "StartError", False),
        ('error mounting "/var/lib/x" to rootfs at "/x": no such file or directory', "StartError", False),
        ("error gathering device information /dev/nvidia0: permission denied", "StartError", False),
    ],
)
def test_a_program_that_cannot_be_started_fails_the_job_immediately(
    report: dict[str, Any] | str, reason: str, *, fails: bool
) -> None:
    for rules, again in (([], not fails), ([{"action": "Restart", "reasons": ["Error"]}], True)):
        world = started(rules=rules)
        world.end("digits-a0-0", 1, report if isinstance(report, str) else json.dumps(report), reason=reason)
        world.advance(6)
        world.settle()
        assert world.status is not None
        assert (world.status.attempt, world.status.restarts.counted) == ((1, 1) if again else (0, 0))
        assert world.status.finished is not again
        if not again:
            condition = world.status.condition(ConditionType.FAILED)
            assert condition is not None
            assert condition.reason == "CannotStart"
            assert "another attempt would end the same way" in condition.message


@pytest.mark.parametrize(("before", "step"), [(False, None), (True, None), (True, 7)])
def test_a_module_that_is_missing_fails_a_job_only_in_its_first_attempt(step: int | None, *, before: bool) -> None:
    world = started()
    if before:
        crash(world, step=step)
    assert world.status is not None
    attempt = world.status.attempt
    missing = {"rank": 1, "exitCode": 1, "message": "ModuleNotFoundError: No module named 'gone'", "permanent": True}
    world.end(f"digits-a{attempt}-1", 1, json.dumps({"exitCode": 1, "failures": [missing]}))
    world.advance(6)
    world.settle()
    assert world.status.failure is not None
    assert world.status.failure.reason == ("ExitCode" if before else "CannotStart")
    assert world.status.finished is not before
    assert world.status.restarts.counted == (2 if before else 0)


def test_a_rule_that_says_ignore_starts_the_next_attempt_without_counting() -> None:
    world = started(maxRestarts=0, rules=[{"action": "Ignore", "exitCodes": [75]}])
    crash(world, code=75)
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.counted, world.status.restarts.ignored) == (1, 0, 1)
    assert "not counted" in next(event.message for event in world.events if event.reason == "Restarting")


@pytest.mark.parametrize(
    ("crashes", "spec", "seconds"),
    [
        (1, {}, 1),
        (2, {}, 2),
        (4, {"maxRestarts": 9}, 8),
        (3, {"backoffSeconds": 0}, 0),
        (3, {"maxBackoffSeconds": 3}, 3),
    ],
)
def test_the_backoff_doubles_up_to_its_most(crashes: int, spec: dict[str, Any], seconds: int) -> None:
    world = started(**spec)
    for _ in range(crashes - 1):
        crash(world)
    assert world.status is not None
    attempt = world.status.attempt
    world.end(f"digits-a{attempt}-0", 1)
    world.settle()
    world.kubelet_removes_deleted_pods()
    made_after = next(
        (waited for waited in range(100) if _made(world, f"digits-a{attempt + 1}-0", waited)),
        None,
    )
    assert made_after == seconds


@pytest.mark.parametrize("steps", [False, True], ids=["no steps", "steps made up"])
def test_a_program_that_exits_immediately_and_is_ignored_is_started_ever_more_slowly(*, steps: bool) -> None:
    rules = [{"action": "Ignore", "exitCodes": [1]}]
    world = World(spec=spec_of(restart={"backoffSeconds": 0, "maxBackoffSeconds": 0, "rules": rules}))
    world.settle()
    waits = []
    for attempt in range(12):
        world.run_all()
        if steps:
            world.progress = ProgressReport(attempt, Progress(step=attempt + 1), "0.5")
        for node in (0, 1):
            world.end(f"digits-a{attempt}-{node}", 1)
        world.settle()
        waits.append(next(waited for waited in range(400) if _made(world, f"digits-a{attempt + 1}-0", waited)))
    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert world.status is not None
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (0, 12)


def test_a_long_wait_for_the_next_attempt_is_explained() -> None:
    world = started(backoffSeconds=60)
    world.end("digits-a0-0", 1)
    world.settle()
    assert world.status is not None
    condition = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert condition is not None
    assert "and not before 00:01:06 UTC: it is restart 1 in a row without a newer step" in condition.message
    writes = len(world.status_writes)
    world.advance(50)
    world.settle()
    assert len(world.status_writes) == writes


def test_a_preempted_job_that_had_come_far_does_not_fail_for_want_of_progress() -> None:
    world = started(maxRestarts=100, noProgressLimit=2)
    for _ in range(2):
        crash(world, step=50)
    world.progress = ProgressReport(2, Progress(step=10_000, last_checkpoint_step=9_000), "0.5")
    world.advance(6)
    world.settle()
    world.pods["digits-a2-1"] = replace(world.pods["digits-a2-1"], disruption="PreemptionByScheduler")
    world.delete_pod("digits-a2-1")
    world.settle()
    for _ in range(2):
        world.kubelet_removes_deleted_pods()
        world.advance(40)
        world.settle()
    world.run_all()
    crash(world, step=9_500)
    assert world.status is not None
    assert not world.status.finished
    assert (world.status.restarts.counted, world.status.restarts.ignored) == (3, 1)
    assert world.status.restarts.without_progress == 0


def _made(world: World, name: str, waited: int) -> bool:
    if waited:
        world.advance(1)
    world.settle()
    return name in world.pods


def test_restarts_inside_running_pods_are_added_up_over_attempts() -> None:
    world = started()
    world.progress = ProgressReport(0, Progress(step=5), "0.5")
    world.report_rank(rank=0, step=5, process_restarts=2)
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert (world.status.restarts.process, world.status.restarts.counted) == (2, 0)
    assert [event.reason for event in world.events].count("ProcessesRestarted") == 1
    crash(world, step=6)
    world.progress = ProgressReport(1, Progress(step=7), "0.5")
    world.report_rank(rank=0, step=7, process_restarts=1)
    world.advance(6)
    world.settle()
    assert (world.status.restarts.process, world.status.restarts.counted) == (3, 1)
    world.crash()
    world.settle()
    assert world.status.restarts.process == 3


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


def test_the_intent_to_abandon_an_attempt_is_written_before_a_pod_of_it_is_deleted() -> None:
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


def test_a_pod_that_is_deleted_has_failed_immediately() -> None:
    world = running_world()
    world.delete_pod("digits-a0-0")
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "PodDeleted"


def test_a_pod_that_its_node_does_not_acknowledge_ends_the_attempt_once_new_pods_avoid_that_node() -> None:
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


def test_a_consequence_waits_a_moment_for_its_cause() -> None:
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
    world.advance(55)
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
    world.reconcile()
    world.advance(60)
    world.reconcile()
    assert world.status is not None
    assert world.status.holds(ConditionType.FAILED)


def test_a_consequence_whose_cause_never_shows_is_reported_after_a_moment() -> None:
    world = running_world()
    lost = {"exitCode": 1, "failures": [{"rank": 0, "exitCode": 1, "time": 1, "message": "Connection closed by peer"}]}
    world.end("digits-a0-0", 1, json.dumps(lost))
    world.reconcile()
    world.advance(5)
    world.reconcile()
    assert world.status is not None
    assert world.status.restarts.last_reason == "ConnectionLost"


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


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "DeletionByPodGC"])
@pytest.mark.parametrize("steps", [True, False])
def test_a_pod_that_is_removed_by_force_while_it_runs_is_not_counted_where_its_condition_says_why(
    reason: str,
    steps: bool,  # noqa: FBT001 a column
) -> None:
    world = running_world()
    if steps:
        world.progress = ProgressReport(0, Progress(step=40), "0.5")
        world.report_rank(0, 40)
        world.settle()
    world.pods["digits-a0-1"] = replace(world.pods["digits-a0-1"], disruption=reason)
    world.remove("digits-a0-1")
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.ignored, world.status.restarts.counted) == (1, 1, 0)
    assert world.status.failure is not None
    assert (world.status.failure.failure_class, world.status.failure.reason) == ("Disruption", reason)


def test_a_pod_that_is_removed_by_force_without_a_reason_is_counted() -> None:
    world = running_world()
    world.remove("digits-a0-1")
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.restarts.ignored, world.status.restarts.counted) == (1, 0, 1)


def test_the_failure_of_a_node_that_there_is_not_in_a_status_that_was_edited_is_decided_on_all_the_same() -> None:
    world = running_world()
    assert world.status is not None
    edited = Failure(attempt=0, ordinal=700, pod="digits-a0-0", reason=POD_MISSING, message="edited")
    world.status = world.status.model_copy(update={"failure": edited})
    world.remove("digits-a0-0")
    world.settle()
    assert (world.status.attempt, world.status.restarts.counted) == (1, 1)
