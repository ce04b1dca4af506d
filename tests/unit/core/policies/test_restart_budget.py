"""How restarts are counted."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import Restarts
from ddpjob_core.policies.restart_budget import budget_left, counted_restart, ignored_restart

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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
