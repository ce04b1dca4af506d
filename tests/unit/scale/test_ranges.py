"""The ranges of the scale benchmark judge what it has measured."""

import math

import pytest

from tests.scale.bench.cases import Case, Quiet, Rate, Replaced, Restarted
from tests.scale.bench.fairness import Fairness
from tests.scale.bench.large import Thousands
from tests.scale.bench.mixed import Mixed
from tests.scale.bench.ranges import Range, figures, judged, ranges


def rate(who: str, per_second: float = 100, first_ms: float = 10, **seconds: float) -> Rate:
    used = {"operator_seconds": 1.0, "controller_seconds": 0.5, "server_seconds": 5.0, **seconds}
    return Rate(who, per_second, first_ms, **used)


def thousands(*, peak: float, killed: bool = False, gap: float = 0.5) -> Thousands:
    return Thousands(1, 10_000, killed, 50.0, gap, 15.0, 80.0, peak)


RESULTS: dict[str, list[Case]] = {
    "one": [
        *(rate("bare", 400), rate("own", 200, server_seconds=6.0), rate("job", 250)),
        *(rate("bare", 400), rate("own", 240, server_seconds=6.5), rate("job", 240)),
        *(rate("bare", 400), rate("own", 300, server_seconds=7.0), rate("job", 200)),
    ],
    "many": [rate("own", 20, 400), rate("job", 40, 200)],
    "killed": [Restarted(115, 4.0, 2.0), Restarted(120, 6.0, 3.0)],
    "gang": [Replaced(0.4)],
    "quiet": [Quiet(500, {"watch pods": 2, "update ddpjobs/status": 2}, 0.15, 80.0)],
    "large": [thousands(peak=99.0)],
    "large-killed": [thousands(peak=90.0, killed=True, gap=2.0), thousands(peak=100.0, killed=True, gap=4.0)],
    "fleet": [thousands(peak=130.0)],
    "mixed": [Mixed(5000, 1000, 50.0, 0, 60.0, 150.0, 6.0, 0, 140.0)],
    "fairness": [Fairness(50, 10_000, (0.5, 1.2), (0.3, 0.8), (0.02, 0.1), (4000, 6000))],
}


def test_figures_are_medians_of_ratios_within_a_run() -> None:
    assert figures(RESULTS) == {
        "one.rate_to_bare": 0.6,
        "one.rate_to_job": 1.0,
        "one.server_to_bare": 1.3,
        "one.operator_to_server": 0.2,
        "one.first_pod": 4.0,
        "many.rate_to_job": 0.5,
        "many.operator_to_controller": 2.0,
        "killed.complete": 5.0,
        "killed.gap": 2.5,
        "gang.replaced": 0.4,
        "quiet.writes": 2,
        "quiet.cpu_percent": 0.3,
        "large.peak": 99.0,
        "large-killed.peak": 95.0,
        "large-killed.gap": 3.0,
        "fleet.peak": 130.0,
        "mixed.memory": 150.0,
        "mixed.touched": 0,
        "mixed.ready": 6.0,
        "fairness.ratio": pytest.approx(1.5),
    }


def test_cases_that_were_not_run_have_no_figures_and_are_not_judged() -> None:
    assert figures({}) == {}
    assert set(figures({"gang": [Replaced(0.4)]})) == {"gang.replaced"}
    assert judged(ranges(), {}) == ([], True)


@pytest.mark.parametrize(
    ("bound", "value", "holds"),
    [
        ({"at_least": 0.5}, 0.5, True),
        ({"at_least": 0.5}, 0.49, False),
        ({"at_most": 2}, 2, True),
        ({"at_most": 2}, 2.1, False),
        ({"at_least": 0.5}, math.nan, False),
        ({"at_most": 2}, math.nan, False),
    ],
)
def test_a_figure_beyond_its_bound_fails_the_run_and_says_what_it_was(
    bound: dict[str, float], value: float, *, holds: bool
) -> None:
    wanted = Range("gang.replaced", "all pods again", 0.3, "0.35 (commit 0000000)", **bound)
    lines, well = judged([wanted], {"gang.replaced": value})
    assert well is holds
    assert ("OUT OF RANGE, it was 0.35 (commit 0000000)" in lines[0]) is not holds


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "at_most": 2}])
def test_a_range_has_exactly_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"gang\.replaced: give either at_least or at_most"):
        Range("gang.replaced", "all pods again", 0.3, "0.35", **bounds)


def test_each_range_of_the_file_is_about_a_figure_and_its_goal_lies_within_it() -> None:
    wanted = ranges()
    assert {each.figure for each in wanted} <= set(figures(RESULTS))
    assert len({each.figure for each in wanted}) == len(wanted)
    assert all(each.holds(each.goal) for each in wanted)
