"""spec.restart: what follows which failure, and how restarts are counted."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.restart import DEFAULT_RULES, Restart, RestartAction, RestartRule
from ddpjob_core.api.status import Failure, Progress, Restarts
from ddpjob_core.policies.restart_budget import budget_left, counted_restart, ignored_restart
from ddpjob_core.policies.restart_rules import action_for, matches, why_failed
from ddpjob_core.wire.progress import ProgressReport

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def failure(**fields: Any) -> Failure:
    return Failure.model_validate({"reason": "ExitCode", "message": "rank 1 exited", "class": "Error", **fields})


@pytest.mark.parametrize(
    ("rule", "fails_by", "matched"),
    [
        ({"exitCodes": [3, 7]}, {"exitCode": 7}, True),
        ({"exitCodes": [3]}, {"exitCode": 7}, False),
        ({"exitCodes": [3]}, {}, False),
        ({"signals": ["SIGKILL"]}, {"signal": "SIGKILL"}, True),
        ({"signals": ["SIGKILL"]}, {"signal": "SIGSEGV"}, False),
        ({"reasons": ["OOMKilled"]}, {"reason": "OOMKilled", "class": "OutOfMemory"}, True),
        ({"reasons": ["OutOfMemory"]}, {"reason": "OOMKilled", "class": "OutOfMemory"}, True),
        ({"reasons": ["DisruptionTarget"]}, {"reason": "Evicted", "class": "Disruption"}, True),
        ({"reasons": ["DisruptionTarget"]}, {"reason": "ExitCode"}, False),
        ({"reasons": ["CannotStart"]}, {"reason": "CannotStart", "message": "no script"}, True),
        (
            {"reasons": ["CannotStart"]},
            {"reason": "StartError", "message": 'exec: "/x": stat /x: no such file or directory'},
            True,
        ),
        ({"reasons": ["CannotStart"]}, {"reason": "StartError", "message": "cgroup: device busy"}, False),
        ({"message": "CUDA error"}, {"message": "RuntimeError: CUDA error: no kernel"}, True),
        ({"message": "CUDA error"}, {"traceback": "...\nCUDA error: x"}, True),
        ({"message": "CUDA error"}, {}, False),
        ({"exitCodes": [7], "message": "bad"}, {"exitCode": 7}, False),
        ({"exitCodes": [7], "message": "bad"}, {"exitCode": 7, "message": "bad luck"}, True),
    ],
)
def test_a_rule_matches_when_all_that_it_gives_does(
    rule: dict[str, Any], fails_by: dict[str, Any], *, matched: bool
) -> None:
    rules = [RestartRule.model_validate({"action": "Fail", **rule})]
    assert (action_for(failure(**fails_by), rules) is RestartAction.FAIL) is matched


def test_the_first_rule_that_matches_decides() -> None:
    rules = [
        RestartRule.model_validate({"action": "Ignore", "exitCodes": [7]}),
        RestartRule.model_validate({"action": "Fail", "exitCodes": [7]}),
    ]
    assert action_for(failure(exitCode=7), rules) is RestartAction.IGNORE


def test_without_a_rule_a_disruption_is_ignored_and_all_else_restarted() -> None:
    assert action_for(failure(**{"class": "Disruption"}), []) is RestartAction.IGNORE
    assert action_for(failure(), []) is RestartAction.RESTART
    disrupted_counts = [RestartRule.model_validate({"action": "Restart", "reasons": ["DisruptionTarget"]})]
    assert action_for(failure(**{"class": "Disruption"}), disrupted_counts) is RestartAction.RESTART


def test_the_default_rules_cover_every_failure_and_the_last_one_alone_covers_all() -> None:
    assert [matches(default.rule, failure()) for default in DEFAULT_RULES] == [
        *[False] * (len(DEFAULT_RULES) - 1),
        True,
    ]


def test_a_rule_that_fails_the_job_gives_its_reason_and_that_of_a_default_rule_where_it_says_the_same() -> None:
    missing = failure(reason="CannotStart", message="no script")
    assert action_for(missing, []) is RestartAction.FAIL
    assert why_failed(missing) == ("CannotStart", "another attempt would end the same way")
    assert why_failed(failure()) == ("FailedByRule", "a rule of spec.restart.rules says Fail")


def test_with_a_window_only_restarts_inside_of_it_count() -> None:
    spec = Restart(max_restarts=2, window_seconds=100)
    restarts = Restarts()
    for seconds in (0, 90):
        restarts = counted_restart(restarts, spec, "ExitCode", NOW + timedelta(seconds=seconds))
    assert budget_left(restarts, spec, NOW + timedelta(seconds=95)).exhausted
    assert not budget_left(restarts, spec, NOW + timedelta(seconds=101)).exhausted
    assert restarts.counted == 2


def test_restarts_in_a_row_are_those_without_a_newer_step() -> None:
    spec, restarts = Restart(), Restarts(furthest_step=10)
    seen = []
    for step in (10, 10, 10, 20, 20):
        restarts = counted_restart(restarts.model_copy(update={"furthest_step": step}), spec, "ExitCode", NOW)
        seen.append((restarts.in_a_row, restarts.without_progress))
    assert seen == [(1, 0), (2, 1), (3, 2), (1, 0), (2, 1)]


RESTARTS = st.tuples(st.sampled_from(["counted", "ignored"]), st.none() | st.integers(0, 20), st.integers(0, 300))


@given(walk=st.lists(RESTARTS))
def test_counts_never_fall_and_never_mix(walk: list[tuple[str, int | None, int]]) -> None:
    spec, restarts, now = Restart(window_seconds=60), Restarts(), NOW
    for kind, step, seconds in walk:
        now += timedelta(seconds=seconds)
        furthest = max((s for s in (restarts.furthest_step, step) if s is not None), default=None)
        before = restarts.model_copy(update={"furthest_step": furthest})
        restarts = counted_restart(before, spec, "x", now) if kind == "counted" else ignored_restart(before, "x", now)
        assert restarts.counted == before.counted + (kind == "counted")
        assert restarts.ignored == before.ignored + (kind == "ignored")
        assert 1 <= restarts.in_a_row <= restarts.counted + restarts.ignored
        assert budget_left(restarts, spec, now).used <= restarts.counted
        assert len(restarts.recent_times or []) <= spec.max_restarts


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


def test_a_job_that_makes_newer_steps_goes_on() -> None:
    world = started(maxRestarts=100, noProgressLimit=2)
    for step in range(50, 500, 50):
        crash(world, step=step)
    assert world.status is not None
    assert not world.status.finished
    assert (world.status.restarts.counted, world.status.restarts.furthest_step) == (9, 450)


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


def test_a_rule_that_says_fail_ends_the_job_at_once() -> None:
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
def test_a_program_that_cannot_be_started_fails_the_job_at_once(
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
