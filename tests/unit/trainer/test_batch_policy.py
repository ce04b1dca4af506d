"""What a step reads when the number of ranks, or the program, is another one than when the training began."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.data.sharing import StepSize
from ddpjob_trainer.loop.batch_policy import BatchPolicy, Began, began_with, step_size

CONSTANT, SCALE = BatchPolicy.CONSTANT, BatchPolicy.SCALE
BEGAN = Began(8, 2, 4)
COUNTS = st.integers(1, 9)


@pytest.mark.parametrize(
    ("policy", "before", "now", "expected"),
    [
        pytest.param(CONSTANT, None, Began(8, 2, 3), Began(8, 2, 3), id="it begins"),
        pytest.param(CONSTANT, BEGAN, Began(8, 2, 3), BEGAN, id="other ranks share it"),
        pytest.param(SCALE, BEGAN, Began(8, 2, 3), Began(8, 2, 3), id="it scales"),
        pytest.param(CONSTANT, BEGAN, Began(32, 2, 1), Began(32, 2, 1), id="a program that divides by the ranks"),
        pytest.param(CONSTANT, BEGAN, Began(8, 1, 4), Began(8, 1, 4), id="other accumulation"),
    ],
)
def test_what_the_global_batch_follows_from(
    policy: BatchPolicy, before: Began | None, now: Began, expected: Began
) -> None:
    assert began_with(policy, before, now, this_process=False) == expected


def test_another_loader_of_the_same_process_has_batches_of_its_own_and_the_same_ranks() -> None:
    assert began_with(CONSTANT, BEGAN, Began(32, 2, 3), this_process=True) == Began(32, 2, 4)
    assert began_with(SCALE, BEGAN, Began(32, 2, 3), this_process=True) == Began(32, 2, 3)


@given(st.integers(0, 9), COUNTS, COUNTS, st.lists(COUNTS, max_size=5))
def test_over_any_sequence_of_sizes_a_constant_global_batch_stays_and_a_scaled_one_forgets(
    batch: int, accumulate: int, ranks: int, others: list[int]
) -> None:
    constant = scaled = first = Began(batch, accumulate, ranks)
    for world in others:
        now = Began(batch, accumulate, world)
        constant = began_with(CONSTANT, Began.of(constant.state()), now, this_process=False)
        scaled = began_with(SCALE, Began.of(scaled.state()), now, this_process=False)
        assert constant == first
        assert step_size(constant, world, several=True) == StepSize(accumulate, ranks)
        assert step_size(constant, world, several=False) == StepSize(accumulate, min(ranks, world))
        assert step_size(scaled, world, several=True) == StepSize(accumulate, world)


@pytest.mark.parametrize(
    ("began", "ranks", "expected"),
    [
        (Began(8, 2, 4), None, "64 samples"),
        (Began(8, 2, 4), 1, "16 samples"),
        (Began(0, 2, 4), None, "8 batches"),
        (Began(0, 1, 1), None, "1 batch"),
        (Began(1, 1, 1), None, "1 sample"),
    ],
)
def test_a_message_says_how_large_it_is(began: Began, ranks: int | None, expected: str) -> None:
    assert began.words(ranks) == expected


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "globalBatch.batchSize must be a whole number of at least 0, not None"),
        ({"batchSize": 8, "accumulate": 0, "ranks": 2}, "globalBatch.accumulate .* at least 1, not 0"),
        ({"batchSize": 8, "accumulate": 1, "ranks": "2"}, "globalBatch.ranks .* not '2'"),
        ({"batchSize": True, "accumulate": 1, "ranks": 2}, "globalBatch.batchSize .* not True"),
        ({"batchSize": 8, "accumulate": 1, "ranks": -1}, "globalBatch.ranks .* not -1"),
    ],
)
def test_a_damaged_checkpoint_is_named(state: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Began.of(state)
