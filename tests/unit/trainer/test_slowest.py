"""Which rank is named as the one that slows down the others, and which is not."""

import math
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.observability.slowest import (
    CLEARED_BELOW,
    LEAST_MEASURED,
    MOST_TIMES,
    NAMED_FROM,
    WINDOW_SECONDS,
    WINDOWS,
    OwnSeconds,
    Part,
    Slowest,
    SlowestRank,
)

STEPS: Final = 100
DATA, COMPUTING, CHECKPOINT = range(3)


def rank(data: float = 0.0, computing: float = 0.05, checkpoint: float = 0.0, *, step: float = 0.1) -> OwnSeconds:
    """What a rank measures in a window of 100 steps, each of `step` seconds, from seconds per step."""
    measured = STEPS / 2
    return OwnSeconds(STEPS, measured, data * measured, computing * measured, checkpoint * STEPS, step * STEPS)


def after(windows: int, ranks: Sequence[OwnSeconds], judge: SlowestRank | None = None) -> Slowest | None:
    judge = judge or SlowestRank()
    for _ in range(windows):
        judge.add(ranks)
    return judge.found


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([rank(), rank()], None),
        ([rank(), rank(computing=0.1)], (1, 2.0, Part.COMPUTING)),
        ([rank(computing=0.1), rank()], (0, 2.0, Part.COMPUTING)),
        ([rank(), rank(data=0.05)], (1, 2.0, Part.DATA)),
        ([rank(checkpoint=0.05), rank()], (0, 2.0, Part.CHECKPOINT)),
        # All wait for slow data alike.
        ([rank(data=0.5, step=1), rank(data=0.52, step=1)], None),
        # A node with two slow ranks, of which the slower one is named.
        ([rank(), rank(), rank(computing=0.1), rank(computing=0.11, step=0.11)], (3, 2.2, Part.COMPUTING)),
        # One slow rank has two that are slow among the others, and still more that are not.
        ([rank()] * 5 + [rank(data=0.05)] * 3, (5, 2.0, Part.DATA)),
        # Most are slow: there is nobody for whom they wait.
        ([rank()] * 2 + [rank(data=0.05)] * 6, None),
        # Twice as long, for a part of the step that does not matter.
        ([rank(computing=0.005), rank(computing=0.01)], None),
        ([rank(computing=0.0), rank(computing=0.05)], (1, MOST_TIMES, Part.COMPUTING)),
        ([rank(computing=0.0)] * 3, None),
        ([rank(computing=0.05), rank(computing=0.05 * 1.29)], None),
        ([rank(computing=0.05), rank(computing=0.05 * 1.31)], (1, 1.3, Part.COMPUTING)),
        ([rank(computing=0.1)], None),
        ([], None),
    ],
)
def test_a_rank_is_named_by_how_much_longer_it_takes_than_the_others(
    ranks: list[OwnSeconds], named: tuple[int, float, Part] | None
) -> None:
    assert after(WINDOWS, ranks) == (None if named is None else Slowest(*named))


def test_nobody_is_named_before_it_was_slow_for_long_enough() -> None:
    judge = SlowestRank()
    changes = [judge.add([rank(), rank(data=0.05)]) for _ in range(WINDOWS + 2)]
    assert changes == [False] * (WINDOWS - 1) + [True, False, False]


def test_a_slow_moment_names_nobody_and_a_quick_one_clears_nobody() -> None:
    quick, slow = [rank(), rank()], [rank(), rank(data=0.05)]
    judge = SlowestRank()
    for _ in range(20):
        after(WINDOWS - 1, slow, judge)
        assert after(1, quick, judge) is None
    after(WINDOWS, slow, judge)
    for _ in range(20):
        assert after(WINDOWS - 1, quick, judge) is not None
        assert after(1, slow, judge) is not None
    assert after(WINDOWS, quick, judge) is None


def test_two_ranks_that_are_slow_alike_do_not_take_turns() -> None:
    judge = SlowestRank()
    named = set()
    for window in range(50):
        faster, slower = rank(computing=0.1), rank(computing=0.105)
        judge.add([rank(), rank(), *((faster, slower) if window % 2 else (slower, faster))])
        if window >= WINDOWS:
            assert judge.found is not None
            named.add(judge.found.rank)
    assert len(named) == 1


def test_a_rank_that_is_slower_than_the_named_one_takes_its_place() -> None:
    judge = SlowestRank()
    assert after(WINDOWS, [rank(), rank(), rank(data=0.05)], judge) == Slowest(2, 2.0, Part.DATA)
    ranks = [rank(), rank(computing=0.25, step=0.3), rank(data=0.05, step=0.3)]
    assert after(WINDOWS, ranks, judge) == Slowest(1, 3.3, Part.COMPUTING)


def test_with_another_number_of_ranks_it_begins_from_scratch() -> None:
    judge = SlowestRank()
    assert after(WINDOWS, [rank(), rank(), rank(data=0.05)], judge) is not None
    assert judge.add([rank(), rank(data=0.05)])
    assert judge.found is None
    assert after(WINDOWS - 1, [rank(), rank(data=0.05)], judge) == Slowest(1, 2.0, Part.DATA)


def test_a_window_is_as_long_as_its_training_whatever_the_log_steps_are() -> None:
    judge = SlowestRank()
    # A tenth of a window each.
    piece = [OwnSeconds(5, 5, 0, each, 0, WINDOW_SECONDS / 10) for each in (0.1, 0.4)]
    for _ in range(10 * WINDOWS - 1):
        assert not judge.add(piece)
    assert judge.add(piece)
    assert judge.found == Slowest(1, 4.0, Part.COMPUTING)


def test_a_window_waits_for_a_rank_that_has_measured_too_little() -> None:
    judge = SlowestRank()
    missing = OwnSeconds(STEPS, 0, 0, 0, 0, 10.0)
    for _ in range(50):
        assert not judge.add([rank(), missing])
    assert after(WINDOWS, [rank(), rank(data=0.05)], judge) is not None


seconds = st.floats(0, 1e4)
owns = st.builds(
    OwnSeconds,
    steps=st.integers(1, 10_000),
    measured=st.integers(0, 10_000),
    data=seconds,
    computing=seconds,
    checkpoint=seconds,
    elapsed=seconds,
)


@given(st.lists(st.lists(owns, min_size=1, max_size=6), max_size=30))
def test_whatever_is_measured_the_answer_is_a_rank_with_a_factor_or_nobody(windows: list[list[OwnSeconds]]) -> None:
    judge = SlowestRank()
    for ranks in windows:
        before = judge.found
        assert judge.add(ranks) == (judge.found != before)
        found = judge.found
        if found is not None:
            assert 0 <= found.rank < len(ranks)
            assert math.isfinite(found.factor)
            assert 1 <= found.factor <= MOST_TIMES


noise = st.floats(0.9, 1.1)


@given(st.lists(st.lists(noise, min_size=4, max_size=4), min_size=1, max_size=60))
def test_ranks_that_differ_by_noise_are_never_named(windows: list[list[float]]) -> None:
    judge = SlowestRank()
    for window in windows:
        judge.add([rank(computing=0.05 * each) for each in window])
        assert judge.found is None


@given(
    st.lists(st.lists(noise, min_size=4, max_size=4), min_size=WINDOWS, max_size=60),
    st.integers(0, 3),
    st.sampled_from([DATA, COMPUTING, CHECKPOINT]),
)
def test_under_noise_a_rank_that_takes_twice_as_long_is_named_and_stays_so(
    windows: list[list[float]], slow: int, part: int
) -> None:
    judge = SlowestRank()
    for number, window in enumerate(windows, 1):
        parts = [[0.0, 0.05 * each, 0.0] for each in window]
        parts[slow][part] += 0.06
        judge.add([rank(*each, step=0.12) for each in parts])
        named = None if judge.found is None else (judge.found.rank, judge.found.what)
        assert named == (None if number < WINDOWS else (slow, list(Part)[part]))


def test_it_is_harder_to_be_named_than_to_stay_so() -> None:
    assert 1 < CLEARED_BELOW < NAMED_FROM
    assert LEAST_MEASURED > 1
    assert WINDOWS > 1
