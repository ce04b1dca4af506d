"""What the training benchmark makes of what it measured."""

from collections.abc import Iterator
from math import comb

import pytest

from hack.bench.training.report import Hook, Measured, Pair, Saving, Scaling, missed, report
from hack.bench.training.statistics import estimate, order_of_interval, percentile
from hack.bench.training.turns import STEPS, Turn, Turns, together

BARE = 1000.0


def measured(*, ratio: float = 1.0, p50: float = 10, p99: float = 40, blocked: float = 10) -> Measured:
    return Measured(
        [
            # One pair of each start was disturbed.
            [
                Pair(BARE, BARE * each, 1.0, each + 0.004 + 1 - ratio)
                for each in (ratio + start / 1e5, 0.5, ratio + 0.01)
            ]
            for start in range(-5, 6)
        ],
        [Hook(10_000, p50, 900), Hook(10_000, p50, p99), Hook(10_000, p50, p99)],
        [
            Saving(
                1, asynchronous=True, bytes=50_000_000, blocked=[blocked] * 3, undisturbed=(20, 2.0), disturbed=(57, 6)
            ),
            Saving(
                1, asynchronous=False, bytes=50_000_000, blocked=[700] * 3, undisturbed=(20, 2.0), disturbed=(60, 8.1)
            ),
        ],
        [Scaling(500, 950, 980)],
    )


@pytest.mark.parametrize(("count", "order"), [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (40, 14)])
def test_the_interval_of_a_median_is_bound_by_values_that_the_true_one_rarely_leaves(count: int, order: int) -> None:
    assert order_of_interval(count) == order

    def beyond(which: int) -> float:
        return 2 * sum(comb(count, heads) for heads in range(which)) / 2**count

    assert beyond(order) <= 0.05 < beyond(order + 1)


def test_an_estimate_is_the_middle_of_what_was_measured_and_too_few_have_none() -> None:
    found = estimate([5.0, 1.0, 3.0, 2.0, 4.0, 6.0, 7.0, 8.0, 9.0])
    assert (found.low, found.median, found.high, found.count) == (2.0, 5.0, 8.0, 9)
    with pytest.raises(ValueError, match="5 measurements have no interval"):
        estimate([1.0] * 5)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: int, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (measured(), []),
        (measured(ratio=0.98), ["the library's loop has 0.980 of the bare one's speed"]),
        (measured(p50=21), ["the step hook takes 21 us at p50"]),
        (measured(p99=61), ["the step hook takes 61 us at p99"]),
        (measured(blocked=30), ["asynchronous saves block 1.50% of 1 process(es)"]),
    ],
)
def test_each_goal_that_is_missed_is_named_with_what_was_measured(found: Measured, said: list[str]) -> None:
    assert missed(found) == said


def test_the_page_says_what_was_measured_and_on_what() -> None:
    page = report(measured(ratio=0.98), commit="abc", command="--pairs 11", load=0.5, cores=2, torch="2.6.0")
    assert '`make bench-training ARGS="--pairs 11"` at commit `abc`, torch 2.6.0, 2 cores' in page
    assert "missed: the library's loop has 0.980 of the bare one's speed." in page
    assert "median of 11 starts of 3 interleaved pairs (95 % interval) | 0.980 (0.980 to 0.980)" in page
    assert (
        "the library's relative to the bare loop's (95 % interval) | 1.004 (1.004 to 1.004): +40 us per step | |"
        in page
    )
    assert "1.90 times the samples per second; two independent processes reach 1.96 times" in page
    assert "synchronous saves, one every 2 s, model of 50 MB with AdamW, 1 process, 3 saves | 25.93%" in page
    assert "longest 10 ms); 0.95 times the steps per second without saves | at most 1% |" in page


def test_two_loops_take_turns_of_as_many_steps_and_each_turn_is_timed() -> None:
    made = list[str]()

    def other() -> Iterator[int]:
        for step in range(1, 3 * STEPS + 1):
            made.append(f"other {step}")
            yield step

    turns = Turns(other())
    for step in range(1, 2 * STEPS + 1):
        made.append(f"own {step}")
        turns.step_finished(step)

    def of(loop: str, turn: int) -> list[str]:
        return [f"{loop} {step}" for step in range(turn * STEPS + 1, (turn + 1) * STEPS + 1)]

    assert made == [*of("own", 0), *of("other", 0), *of("own", 1), *of("other", 1)]
    assert (len(turns.own), len(turns.others)) == (2, 2)
    assert all(turn.seconds > 0 for turn in (*turns.own, *turns.others))


def test_of_turns_that_are_taken_together_the_first_ones_are_left_over() -> None:
    turns = [Turn(float(2**index), float(index)) for index in range(7)]
    assert together(turns, 3) == [Turn(2.0 + 4 + 8, 1.0 + 2 + 3), Turn(16.0 + 32 + 64, 4.0 + 5 + 6)]
