"""How the samples of an epoch are shared out between ranks, also when their number changes in the middle."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_trainer.data.sharing import Share, StepSize

SIZES = st.integers(1, 300)
WORLDS = st.integers(1, 9)
BATCHES = st.integers(1, 17)
ACCUMULATED = st.integers(1, 4)
STEPS = st.builds(StepSize, ACCUMULATED, WORLDS)
"""Of trainings that began with any number of ranks."""


@dataclass(frozen=True)
class Epoch:
    """Of a training that any ranks may continue."""

    size: int
    batch: int
    step: StepSize
    drop_last: bool

    def shares(self, consumed: int, world: int) -> list[Share]:
        return shares(self.size, consumed, world, self.batch, self.step, drop_last=self.drop_last)


EPOCHS = st.builds(Epoch, SIZES, BATCHES, STEPS, st.booleans())


def shares(
    size: int, consumed: int, world: int, batch: int, step: StepSize | None = None, *, drop_last: bool = False
) -> list[Share]:
    """Those of all ranks; without a size of a step, of a training that began with as many."""
    step = step or StepSize(1, world)
    return [Share(size, consumed, rank, world, batch, step, drop_last) for rank in range(world)]


def read(ranks: list[Share], steps: int | None = None) -> list[list[tuple[int, float]]]:
    """What all ranks read in each step: samples, and how much each counts in the loss of the step.

    A loss is the mean of its batch, and DistributedDataParallel takes that of the ranks.
    """
    order, found = list(range(ranks[0].size)), list[list[tuple[int, float]]]()
    each_rank = [zip(share.pick(order), share.parts(), strict=True) for share in ranks]
    while steps is None or len(found) < steps:
        step, batches = list[tuple[int, float]](), set[int]()
        for rank in each_rank:
            count, counted = 0, list[tuple[int, float]]()
            for batch, part in rank:
                assert len(batch) == part.samples <= ranks[0].batch_size
                assert 0 <= part.weight <= 1
                count += 1
                counted += [(sample, part.weight / len(batch) / len(ranks)) for sample in batch]
                if part.last:
                    step += [(sample, weight * part.scale) for sample, weight in counted]
                    break
            batches.add(count)
        assert len(batches) == 1, "a forward pass may need the other ranks"
        if not step:
            break
        found.append(step)
    return found


def samples(steps: list[list[tuple[int, float]]]) -> list[int]:
    """Those that count, in the order of their steps."""
    return [sample for step in steps for sample in sorted(sample for sample, weight in step if weight)]


@given(SIZES, WORLDS, BATCHES)
def test_an_epoch_reads_every_sample_and_repeats_fewer_than_there_are_ranks(size: int, world: int, batch: int) -> None:
    steps = read(shares(size, 0, world, batch))
    found = Counter(sample for step in steps for sample, _ in step)
    assert set(found) == set(range(size))
    in_last_step = size % (world * batch) or world * batch
    assert found.total() - size == max(world - in_last_step, 0), "only where a rank would have none"


@given(EPOCHS, WORLDS, st.data())
def test_in_a_step_every_sample_of_every_rank_counts_alike_and_a_repeated_one_nothing(
    epoch: Epoch, world: int, data: st.DataObject
) -> None:
    ranks = epoch.shares(data.draw(st.integers(0, epoch.size - 1)), world)
    found = read(ranks)
    assert len(found) == ranks[0].steps
    for places, counts in zip(ranks[0].ranges(), found, strict=True):
        assert math.isclose(sum(count for _, count in counts), 1)
        assert all(math.isclose(count * len(places), 1) for _, count in counts if count)
        assert sorted(sample for sample, count in counts if count) == list(places)


@given(SIZES, WORLDS, BATCHES, STEPS)
def test_what_a_step_has_is_divided_as_evenly_as_possible(size: int, world: int, batch: int, step: StepSize) -> None:
    ranks = shares(size, 0, world, batch, step)
    for total in (len(places) for places in ranks[0].ranges()):
        lengths = [share.lengths(total) for share in ranks]
        own = [sum(each) for each in lengths]
        assert sum(own) == total
        assert max(own) - min(own) <= 1
        for each in lengths:
            assert max(each) <= batch
            assert max(each) - min(each) <= 1
            # Not one batch more than the largest share needs.
            assert len(each) == -(-max(own) // batch)


@given(SIZES, WORLDS, BATCHES, ACCUMULATED)
def test_with_the_ranks_that_a_training_began_with_all_batches_are_full_and_nothing_is_scaled(
    size: int, world: int, batch: int, accumulate: int
) -> None:
    step = StepSize(accumulate, world)
    full = size - size % (batch * step.batches)
    for share in shares(full, 0, world, batch, step):
        parts = list(share.parts())
        assert {(part.samples, part.weight, part.scale) for part in parts} <= {(batch, 1 / accumulate, 1)}
        # As torch's DistributedSampler and BatchSampler read it.
        own = iter(range(share.rank, full, world))
        assert list(share.pick(range(full))) == [list(islice(own, batch)) for _ in parts]


@given(EPOCHS, st.lists(st.tuples(WORLDS, st.integers(1, 6)), max_size=6), WORLDS)
def test_over_any_sequence_of_sizes_each_step_has_the_samples_of_the_unscaled_training(
    epoch: Epoch, attempts: list[tuple[int, int]], world: int
) -> None:
    unscaled = read(epoch.shares(0, epoch.step.ranks))
    consumed, found = 0, []
    for ranks, steps in [*attempts, (world, None)]:
        left = epoch.shares(consumed, ranks)
        assert left[0].steps == len(unscaled) - len(found), "the training is as long as it was planned"
        found += read(left, steps)
        consumed = sum(len(samples([each])) for each in found)
        assert samples(found) == list(range(consumed)), "none is lost or repeated"
    assert [samples([each]) for each in found] == [samples([each]) for each in unscaled]


@given(SIZES, st.lists(st.tuples(WORLDS, BATCHES, STEPS, st.integers(0, 6)), max_size=4), WORLDS, BATCHES)
def test_resumed_with_other_ranks_and_other_batches_no_sample_is_lost_or_read_twice(
    size: int, attempts: list[tuple[int, int, StepSize, int]], world: int, batch: int
) -> None:
    consumed, found = 0, list[int]()
    for some_world, some_batch, step, steps in attempts:
        ranks = shares(size, consumed, some_world, some_batch, step)
        ends = [part.consumed for part in ranks[-1].parts() if part.last]
        found += samples(read(ranks, steps))
        consumed = [consumed, *ends][min(steps, len(ends))]
        assert found == list(range(consumed))
    assert found + samples(read(shares(size, consumed, world, batch))) == list(range(size))


@given(SIZES, WORLDS, BATCHES, STEPS, st.integers(0, 6))
def test_where_the_last_are_dropped_they_are_fewer_than_a_batch_for_each_rank_that_it_began_with(
    size: int, world: int, batch: int, step: StepSize, steps: int
) -> None:
    consumed = len(samples(read(shares(size, 0, world, batch, step, drop_last=True), steps)))
    ranks = shares(size, consumed, world, batch, step, drop_last=True)
    found = samples(read(ranks))
    assert found == list(range(consumed, consumed + ranks[0].left))
    assert size - consumed - len(found) == size % (step.ranks * batch)
    if world == step.ranks:
        assert {part.samples for share in ranks for part in share.parts()} <= {batch}


@given(SIZES, WORLDS, BATCHES, STEPS, st.data())
def test_all_ranks_have_the_same_steps_and_each_ends_where_the_next_one_begins(
    size: int, world: int, batch: int, step: StepSize, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, size))
    ranks = [(share, list(share.parts())) for share in shares(size, consumed, world, batch, step)]
    for share, parts in ranks:
        assert share.batches == len(parts) == len(list(share.pick(range(size))))
        assert [part.ends_epoch for part in parts] == [False] * (len(parts) - 1) + [True] * (len(parts) > 0)
    ends = [[(part.scale, part.total, part.consumed) for part in parts if part.last] for _, parts in ranks]
    assert ends == [ends[0]] * world
    assert len(ends[0]) == ranks[0][0].steps
    places = [consumed, *(after for _, _, after in ends[0])]
    assert [total for _, total, _ in ends[0]] == [after - before for before, after in pairwise(places)]
    assert places[-1] == size
