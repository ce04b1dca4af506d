"""How the samples of an epoch are shared between ranks; without torch, so that it can be tested exhaustively."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank computes with one of its batches: a step of the optimizer has one or several of them."""

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


# Without slots, which would leave no room for cached properties: each step uses them.
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
    """Samples per rank and step."""
    drop_last: bool = False
    """Leave out the samples that do not fill a batch on all ranks."""

    @cached_property
    def left(self) -> int:
        """Samples that are still to be consumed by any rank."""
        left = max(self.size - self.consumed, 0)
        return left - left % (self.batch_size * self.world_size) if self.drop_last else left

    @cached_property
    def steps(self) -> int:
        """Steps that consume the remaining samples, the same on every rank."""
        return -(-self.left // (self.batch_size * self.world_size))

    @cached_property
    def length(self) -> int:
        """Samples of this rank, including repeated ones."""
        return self._own + self._repeated

    @cached_property
    def _own(self) -> int:
        return self._length_of(self.rank)

    @cached_property
    def _most(self) -> int:
        """Samples of rank 0; no rank has more."""
        return self._length_of(0)

    def _length_of(self, rank: int) -> int:
        return len(range(rank, self.left, self.world_size))

    @property
    def _repeated(self) -> int:
        """1 if this rank would otherwise have no sample in the last step, in which it must take part."""
        return int(self.steps > -(-self._own // self.batch_size))

    def pick(self, order: Sequence[int]) -> list[int]:
        """This rank's samples, given the order of the whole epoch."""
        own = list(order[self.consumed + self.rank : self.consumed + self.left : self.world_size])
        return own + list(order[: self._repeated])

    def samples(self, step: int) -> int:
        """Samples of this rank in a step, counted from 0 within the remaining steps."""
        return self._within(self.length, step, 1)

    def weight(self, step: int, first: int, parts: int) -> float:
        """Weight of this rank's mean over its samples of a step, relative to rank 0's samples in the optimizer's step.

        DistributedDataParallel takes the plain mean of the ranks' gradients, in which the samples of a rank with fewer
        of them would count more; repeated samples must not count. Rank 0 has the most samples, so that no weight is
        above 1: gradients may be exchanged as float16.

        Args:
            step: counted from 0 within the remaining steps.
            first: of the steps whose gradients are added up with this one's, counted the same way.
            parts: how many these are.

        Returns:
            1/parts if all ranks have full batches.
        """
        return self._within(self._own, step, 1) / self._within(self._most, first, parts)

    def scale(self, first: int, parts: int) -> float:
        """Factor that turns the ranks' mean of an optimizer's step into the mean over all its samples.

        Args:
            first: of its steps, counted from 0 within the remaining steps.
            parts: how many they are.

        Returns:
            1 if all ranks have the same number of samples, otherwise more.
        """
        samples = self.consumed_after(first + parts) - self.consumed_after(first)
        return self._within(self._most, first, parts) * self.world_size / samples

    def parts(self, accumulate: int) -> Iterator[Part]:
        """This rank's batches in order, where a step of the optimizer has this number of them."""
        before = self.consumed
        for index in range(self.steps):
            first = index - index % accumulate
            count = min(accumulate, self.steps - first)
            weight, samples = self.weight(index, first, count), self.samples(index)
            if index + 1 < first + count:
                yield Part(samples, weight, last=False, scale=1, total=0, consumed=before, ends_epoch=False)
                continue
            after = self.consumed_after(index + 1)
            scale, ends = self.scale(first, count), index + 1 == self.steps
            yield Part(samples, weight, last=True, scale=scale, total=after - before, consumed=after, ends_epoch=ends)
            before = after

    def _within(self, length: int, first: int, steps: int) -> int:
        """How many of a rank's samples are in these steps."""
        return max(min(length - first * self.batch_size, steps * self.batch_size), 0)

    def consumed_after(self, steps: int) -> int:
        """Samples of the epoch consumed by all ranks together after this number of the remaining steps."""
        return self.consumed + min(steps * self.batch_size * self.world_size, self.left)
