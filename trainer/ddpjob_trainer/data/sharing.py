"""How the samples of an epoch are shared between ranks; without torch, so that it can be tested exhaustively.

A step reads the next samples of the epoch, as many as its size says, whatever the number of ranks: of these, rank r of
w takes every w-th from the r-th on, in as few batches as fit. So the shares of the ranks differ by one sample at most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class StepSize:
    """What a step of the optimizer reads on all ranks together, counted in full batches."""

    accumulate: int
    """Batches per rank."""
    ranks: int
    """As many ranks, which need not be those that there are."""

    @property
    def batches(self) -> int:
        """Batches of all these ranks."""
        return self.accumulate * self.ranks


class Part(NamedTuple):
    """What a rank computes with one of its batches: a step of the optimizer has one or several of them.

    A tuple, because each step makes one: a frozen dataclass takes twenty times as long.
    """

    samples: int
    """Of the batch."""
    weight: float
    """Of the mean loss of this batch in that of the step, relative to the other batches and ranks."""
    last: bool
    """Whether it is the last one of its step."""
    scale: float
    """On the last one: factor that turns the ranks' mean of the step into the mean over all its samples."""
    total: int
    """On the last one: samples of the step, on all ranks."""
    consumed: int
    """On the last one: samples of the epoch consumed after the step, by all ranks together."""
    ends_epoch: bool
    """Whether the epoch has no further batch."""


# Without slots, which would leave no room for cached properties.
@dataclass(frozen=True)
class Share:
    """One rank's share of what is left of an epoch."""

    size: int
    """Samples in the epoch."""
    consumed: int
    """Samples of it already consumed by all ranks together."""
    rank: int
    world_size: int
    batch_size: int
    """Samples that no batch has more of."""
    step: StepSize
    """Of all ranks together, in batches of this size."""
    drop_last: bool = False
    """Leave out the samples that do not fill a batch on all ranks of the step size."""

    @cached_property
    def left(self) -> int:
        """Samples that are still to be consumed by any rank."""
        left = max(self.size - self.consumed, 0)
        return left - left % (self.batch_size * self.step.ranks) if self.drop_last else left

    @cached_property
    def steps(self) -> int:
        """Steps of the optimizer that consume the remaining samples, the same on every rank."""
        return -(-self.left // self.step_samples)

    @property
    def step_samples(self) -> int:
        """Samples of a step on all ranks; the last one of an epoch may have fewer."""
        return self.batch_size * self.step.batches

    def ranges(self) -> Iterator[range]:
        """The samples of each remaining step, as places in the order of the epoch."""
        begin, end, full = self.consumed, self.consumed + self.left, self.step_samples
        while begin < end:
            after = min(begin + full, end)
            yield range(begin, after)
            begin = after

    def lengths(self, samples: int) -> list[int]:
        """Samples of each batch of this rank in a step with so many on all ranks.

        All ranks have as many batches, because a forward pass may need the other ranks. They differ by one sample at
        most. 0 stands for a batch of a sample that is repeated, for a rank that has none of its own.
        """
        own = len(range(self.rank, samples, self.world_size))
        batches = -(-self._most(samples) // self.batch_size)
        least, more = divmod(own, batches)
        return [least + (index < more) for index in range(batches)]

    def pick(self, order: Sequence[Any]) -> Iterator[list[Any]]:
        """This rank's batches, given the order of the whole epoch."""
        full, lengths = self.step_samples, self.lengths(self.step_samples)
        for places in self.ranges():
            own = order[places.start + self.rank : places.stop : self.world_size]
            wanted, begin = lengths if len(places) == full else self.lengths(len(places)), 0
            if len(own) and wanted == [len(own)]:
                # Nearly always: one batch, which need not be copied again.
                yield own if isinstance(own, list) else list(own)
                continue
            for length in wanted:
                yield list(own[begin : begin + length] if length else order[:1])
                begin += length

    @property
    def batches(self) -> int:
        """How many batches each rank has."""
        full, rest = divmod(self.left, self.step_samples)
        return full * len(self.lengths(self.step_samples)) + (len(self.lengths(rest)) if rest else 0)

    def parts(self) -> Iterator[Part]:
        """What this rank's batches are, in their order.

        DistributedDataParallel takes the plain mean of the ranks' gradients, in which the samples of a rank with fewer
        of them would count more; repeated samples must not count. Rank 0 has the most samples, so that no weight is
        above 1: gradients may be exchanged as float16. If all ranks have the same number of samples, the scale is 1,
        and costs nothing.
        """
        whole, end = self.step_samples, self.consumed + self.left
        full = self._form(whole)
        for places in self.ranges():
            total, after = len(places), places.stop
            before, samples, weight, scale = full if total == whole else self._form(total)
            yield from before
            yield Part(samples, weight, True, scale, total, after, after == end)  # noqa: FBT003 by position: faster

    def _form(self, samples: int) -> tuple[list[Part], int, float, float]:
        """The batches before the last one of a step; samples and weight of the last one, and the scale of the step."""
        most = self._most(samples)
        *before, (last, weight) = [(length or 1, length / most) for length in self.lengths(samples)]
        parts = [within_step(length, share) for length, share in before]
        return parts, last, weight, most * self.world_size / samples

    def _most(self, samples: int) -> int:
        """Samples of rank 0 in a step; no rank has more."""
        return -(-samples // self.world_size)


def within_step(samples: int, weight: float) -> Part:
    """A batch that is not the last one of its step."""
    return Part(samples, weight, last=False, scale=1, total=0, consumed=0, ends_epoch=False)
