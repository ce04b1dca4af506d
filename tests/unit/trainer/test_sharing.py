"""How the samples of an epoch are shared out between ranks, also when their number changes in the middle."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.data.sharing import Share

SIZES = st.integers(1, 300)
WORLDS = st.integers(1, 9)
BATCHES = st.integers(1, 17)


def read(size: int, consumed: int, world: int, batch: int, steps: int | None = None) -> list[int]:
    """The samples that all ranks read in so many steps, or in all that are left."""
    order = list(range(size))
    found = []
    for rank in range(world):
        mine = Share(size, consumed, rank, world, batch).pick(order)
        found += mine if steps is None else mine[: steps * batch]
    return found


@given(SIZES, WORLDS, BATCHES)
def test_an_epoch_reads_every_sample_and_repeats_fewer_than_there_are_ranks(size: int, world: int, batch: int) -> None:
    found = Counter(read(size, 0, world, batch))
    assert set(found) == set(range(size))
    assert found.total() - size < world


@given(SIZES, WORLDS, BATCHES)
def test_samples_are_repeated_only_where_a_rank_would_have_none_in_the_last_step(
    size: int, world: int, batch: int
) -> None:
    in_last_step = size % (world * batch) or world * batch
    repeated = len(read(size, 0, world, batch)) - size
    assert repeated == max(world - in_last_step, 0)


@given(SIZES, WORLDS, BATCHES)
def test_every_rank_has_as_many_steps_and_none_of_them_is_empty(size: int, world: int, batch: int) -> None:
    for rank in range(world):
        share = Share(size, 0, rank, world, batch)
        assert -(-share.length // batch) == share.steps
        assert [share.samples(step) > 0 for step in range(share.steps + 1)] == [True] * share.steps + [False]
        assert sum(share.samples(step) for step in range(share.steps)) == share.length


@given(SIZES, WORLDS, BATCHES, st.integers(1, 4), st.data())
def test_in_a_step_every_sample_of_every_rank_counts_alike_and_a_repeated_one_nothing(
    size: int, world: int, batch: int, accumulate: int, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, size - 1))
    shares = [Share(size, consumed, rank, world, batch) for rank in range(world)]
    order = list(range(size))
    for first in range(0, shares[0].steps, accumulate):
        parts = min(accumulate, shares[0].steps - first)
        counts = Counter[int]()
        for share in shares:
            mine = share.pick(order)
            for part in range(parts):
                read = mine[(first + part) * batch : (first + part + 1) * batch]
                # A loss is the mean of its batch, and DistributedDataParallel takes that of the ranks.
                weight = share.weight(first + part, first, parts)
                assert 0 <= weight <= 1
                count = weight * share.scale(first, parts) / len(read) / world
                counts.update({sample: count for sample in read if count})
        new = range(consumed + first * batch * world, min(consumed + (first + parts) * batch * world, size))
        assert set(counts) == set(new)
        assert all(math.isclose(count * len(new), 1) for count in counts.values())


@given(SIZES, WORLDS, BATCHES, st.integers(0, 6))
def test_where_the_last_are_dropped_all_batches_are_whole_and_fewer_than_a_step_of_all_ranks_are_left_out(
    size: int, world: int, batch: int, steps: int
) -> None:
    order = list(range(size))
    consumed = Share(size, 0, 0, world, batch, drop_last=True).consumed_after(steps)
    shares = [Share(size, consumed, rank, world, batch, drop_last=True) for rank in range(world)]
    found = sorted(sample for share in shares for sample in share.pick(order))
    assert found == list(range(consumed, consumed + shares[0].left))
    assert 0 <= size - consumed - len(found) < world * batch
    for share in shares:
        assert [share.samples(step) for step in range(share.steps)] == [batch] * share.steps
        assert len(share.pick(order)) == share.length == batch * share.steps
        assert [(share.weight(step, step, 1), share.scale(step, 1)) for step in range(share.steps)] == [
            (1, 1)
        ] * share.steps


@given(SIZES, st.lists(st.tuples(WORLDS, BATCHES, st.integers(0, 6)), max_size=4), WORLDS, BATCHES)
def test_resumed_with_any_number_of_ranks_no_sample_is_lost_or_read_twice(
    size: int, parts: list[tuple[int, int, int]], world: int, batch: int
) -> None:
    consumed, found = 0, []
    for some_world, some_batch, steps in parts:
        share = Share(size, consumed, 0, some_world, some_batch)
        # Stopped before the end: what is repeated in the very last step is another sentence.
        some = min(steps, max(share.steps - 1, 0))
        found += read(size, consumed, some_world, some_batch, some)
        consumed = share.consumed_after(some)
        assert sorted(found) == list(range(consumed))
    found += read(size, consumed, world, batch)
    assert set(found) == set(range(size))
    assert len(found) - size < world


@given(SIZES, WORLDS, BATCHES)
def test_all_steps_of_an_epoch_consume_exactly_its_samples(size: int, world: int, batch: int) -> None:
    share = Share(size, 0, 0, world, batch)
    assert share.consumed_after(share.steps) == size
    assert share.consumed_after(share.steps - 1) < size
    assert Share(size, size, 0, world, batch).steps == 0


@given(SIZES, WORLDS, BATCHES, st.integers(1, 4), st.data())
def test_all_ranks_have_the_same_steps_and_each_ends_where_the_next_one_begins(
    size: int, world: int, batch: int, accumulate: int, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, size - 1))
    shares = [Share(size, consumed, rank, world, batch) for rank in range(world)]
    ranks = [list(share.parts(accumulate)) for share in shares]
    for share, parts in zip(shares, ranks, strict=True):
        assert [part.samples for part in parts] == [share.samples(index) for index in range(share.steps)]
        assert [part.last for part in parts] == [
            index % accumulate == accumulate - 1 or index == share.steps - 1 for index in range(share.steps)
        ]
        assert [part.ends_epoch for part in parts] == [False] * (len(parts) - 1) + [True]
    ends = [[(part.scale, part.total, part.consumed) for part in parts if part.last] for parts in ranks]
    assert ends == [ends[0]] * world
    assert consumed + sum(total for _, total, _ in ends[0]) == ends[0][-1][2] == size
