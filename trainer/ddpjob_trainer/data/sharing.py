"""How the samples of an epoch are shared out between ranks; no torch, so that it can be proved exhaustively."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


# Without slots, which would leave no room for what is computed once: each step asks for it.
@dataclass(frozen=True)
class Share:
    """One rank's share of what is left of an epoch."""

    size: int
    """Samples in the epoch."""
    consumed: int
    """Samples of it that all ranks together have consumed before."""
    rank: int
    world_size: int
    batch_size: int
    """Samples a rank and step."""
    drop_last: bool = False
    """Leave out what is too little for whole batches on all ranks."""

    @cached_property
    def left(self) -> int:
        """Samples that no rank has consumed yet, and some rank will."""
        left = max(self.size - self.consumed, 0)
        return left - left % (self.batch_size * self.world_size) if self.drop_last else left

    @cached_property
    def steps(self) -> int:
        """Steps that consume what is left, the same on every rank."""
        return -(-self.left // (self.batch_size * self.world_size))

    @cached_property
    def length(self) -> int:
        """Samples of this rank, those that are repeated for it included."""
        return self._own + self._repeated

    @cached_property
    def _own(self) -> int:
        return self._length_of(self.rank)

    @cached_property
    def _most(self) -> int:
        """Samples of rank 0, of which no rank has more."""
        return self._length_of(0)

    def _length_of(self, rank: int) -> int:
        return len(range(rank, self.left, self.world_size))

    @property
    def _repeated(self) -> int:
        """1 where this rank would have no sample in the last step, which it must take part in."""
        return int(self.steps > -(-self._own // self.batch_size))

    def pick(self, order: Sequence[int]) -> list[int]:
        """This rank's samples out of the whole epoch's order."""
        own = list(order[self.consumed + self.rank : self.consumed + self.left : self.world_size])
        return own + list(order[: self._repeated])

    def samples(self, step: int) -> int:
        """Samples of this rank in a step, counted from 0 within what is left."""
        return self._within(self.length, step, 1)

    def weight(self, step: int, first: int, parts: int) -> float:
        """What this rank's mean over its samples of a step counts, against all that rank 0 has of the optimizer's step.

        DistributedDataParallel takes the plain mean of the ranks' gradients, in which the samples of a rank that has
        fewer of them would count more; what is repeated is to count nothing. Rank 0 has the most, so that none is
        above 1: gradients may travel as float16.

        Args:
            step: counted from 0 within what is left.
            first: of those whose gradients are added up with this one's, counted likewise.
            parts: how many these are.

        Returns:
            1/parts, where all ranks have whole batches.
        """
        return self._within(self._own, step, 1) / self._within(self._most, first, parts)

    def scale(self, first: int, parts: int) -> float:
        """By what the ranks' mean of an optimizer's step is to be multiplied, to be that of all its samples.

        Args:
            first: of its steps, counted from 0 within what is left.
            parts: how many they are.

        Returns:
            1, where all ranks have equally many samples, else more.
        """
        samples = self.consumed_after(first + parts) - self.consumed_after(first)
        return self._within(self._most, first, parts) * self.world_size / samples

    def _within(self, length: int, first: int, steps: int) -> int:
        """How many of a rank's samples are in some steps."""
        return max(min(length - first * self.batch_size, steps * self.batch_size), 0)

    def consumed_after(self, steps: int) -> int:
        """Samples of the epoch that all ranks together have consumed after so many steps of what is left."""
        return self.consumed + min(steps * self.batch_size * self.world_size, self.left)
