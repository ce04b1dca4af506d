"""How restarts are counted."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import DDPJobStatus, Progress, Restarts
from ddpjob_core.policies.no_progress_limit import after_leaving
from ddpjob_core.policies.restart_budget import budget_left, counted_restart, ignored_restart

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status_of(restarts: Restarts, step: int | None = None, saved: int | None = None) -> DDPJobStatus:
    """An attempt that has come so far."""
    return DDPJobStatus(
        restarts=restarts,
        progress=Progress(attempt=0, step=step, last_checkpoint_step=saved),
        attempt_start_time=NOW,
    )


def test_with_a_window_only_restarts_inside_of_it_count() -> None:
    spec = Restart(max_restarts=2, window_seconds=100)
    restarts = Restarts()
    for seconds in (0, 90):
        restarts = counted_restart(status_of(restarts), spec, "ExitCode", NOW + timedelta(seconds=seconds))
    assert budget_left(restarts, spec, NOW + timedelta(seconds=95)).exhausted
    assert not budget_left(restarts, spec, NOW + timedelta(seconds=101)).exhausted
    assert restarts.counted == 2


def test_restarts_in_a_row_are_those_without_a_newer_step() -> None:
    spec, restarts = Restart(), Restarts()
    seen = []
    for step in (10, 10, 9, 20, 20):
        restarts = counted_restart(status_of(restarts, step), spec, "ExitCode", NOW)
        seen.append((restarts.in_a_row, restarts.without_progress))
    assert seen == [(1, 0), (2, 1), (3, 2), (1, 0), (2, 1)]


@pytest.mark.parametrize(
    ("attempts", "without"),
    [
        # Each attempt: how it ended, its last step, its newest checkpoint.
        ("failed 50, failed 50, failed 50", 2),
        ("failed 50, failed 50, preempted 50, failed 50", 2),
        ("failed 50, failed 50, preempted 10000, failed 9", 0),
        ("failed 50, failed 50, preempted 10000, failed 9, failed 9", 1),
        ("failed 50, failed 50, preempted 10000 9000, failed 9900 9000", 0),
        ("failed 50, failed 50, preempted 10000 9000, failed 9000 9000", 1),
        ("failed 50, failed 50, left 10000, failed 0", 1),
        ("failed 50, failed 50, left 50, failed 50", 2),
        ("failed 10990 10000, failed 10600 10500", 0),
        ("failed 10990 10000, failed 10600 10500, failed 10550 10500", 1),
        ("failed 10990 10000, failed 10600 10500, failed 10700 10500", 0),
        ("failed 0, failed 0, failed 3", 0),
        ("preempted 50, preempted 50, preempted 50", 0),
    ],
)
def test_a_restart_is_without_progress_only_if_the_attempt_came_no_further(attempts: str, without: int) -> None:
    status = DDPJobStatus()
    for attempt in attempts.split(", "):
        end, step, *saved = attempt.split()
        status = status_of(status.restarts, int(step), int(saved[0]) if saved else None)
        restarts = (
            counted_restart(status, Restart(), "ExitCode", NOW)
            if end == "failed"
            else ignored_restart(status, Restart(), "Evicted", NOW)
            if end == "preempted"
            else after_leaving(status)
        )
        status = DDPJobStatus(restarts=restarts)
    assert status.restarts.without_progress == without


def test_restarts_that_no_budget_limits_are_a_run_of_short_attempts_that_come_no_further() -> None:
    restarts, seen, now = Restarts(), [], NOW
    for step, lasted in ((0, 1), (0, 299), (0, 1), (0, 300), (0, 1), (7, 29), (7, 30), (0, 30)):
        status = status_of(restarts, step).model_copy(update={"attempt_start_time": now + timedelta(minutes=10)})
        now += timedelta(minutes=10, seconds=lasted)
        restarts = ignored_restart(status, Restart(), "x", now)
        seen.append(restarts.unlimited_in_a_row)
    assert seen == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(("window", "unlimited"), [(None, 0), (60, 3)])
def test_counted_restarts_are_limited_unless_there_is_a_window(window: int | None, unlimited: int) -> None:
    restarts = Restarts()
    for _ in range(3):
        restarts = counted_restart(status_of(restarts), Restart(window_seconds=window), "ExitCode", NOW)
    assert restarts.unlimited_in_a_row == unlimited


RESTARTS = st.tuples(st.sampled_from(["counted", "ignored"]), st.none() | st.integers(0, 20), st.integers(0, 300))


@given(walk=st.lists(RESTARTS))
def test_counts_never_fall_and_never_mix(walk: list[tuple[str, int | None, int]]) -> None:
    spec, restarts, now = Restart(window_seconds=60), Restarts(), NOW
    for kind, step, seconds in walk:
        now += timedelta(seconds=seconds)
        before = status_of(restarts, step)
        restarts = (
            counted_restart(before, spec, "x", now) if kind == "counted" else ignored_restart(before, spec, "x", now)
        )
        assert restarts.counted == before.restarts.counted + (kind == "counted")
        assert restarts.ignored == before.restarts.ignored + (kind == "ignored")
        assert 1 <= restarts.in_a_row <= restarts.counted + restarts.ignored
        assert restarts.without_progress <= restarts.in_a_row
        assert budget_left(restarts, spec, now).used <= restarts.counted
        assert len(restarts.recent_times or []) <= spec.max_restarts
