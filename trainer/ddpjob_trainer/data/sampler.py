"""Which rank reads which sample: torch's DistributedSampler, but able to start in the middle of an epoch.

An epoch is one order of all samples, the same on every rank. Its steps consume it from its beginning to its end, each
on all ranks together: after a step exactly the first samples are consumed, whatever the number of ranks was. That is
why a position is one number, and why a training may continue with another number of ranks.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Share, StepSize
from ddpjob_trainer.process.environment import MisuseError


class ResumableBatches:
    """A batch sampler: lists of indices of this rank's samples in the rest of an epoch.

    By default the order is that of DistributedSampler with the same seed. Samples are repeated only if a step has
    fewer samples than ranks, or batches of one sample that cannot be divided among the ranks: a rank without any could
    not take part in it.
    """

    def __init__(
        self,
        size: int,
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        seed: int,
        drop_last: bool = False,
        shuffle: bool = True,
        order: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        """Args:
        size: samples in the data set.
        rank: of this process.
        world_size: number of processes.
        batch_size: samples per batch at most.
        seed: the order of an epoch depends on it and on the epoch's number.
        drop_last: leave out the samples that do not fill a batch on all ranks.
        shuffle: in another order in each epoch.
        order: gives the indices of an epoch, of all ranks together, always the same ones; None follows `shuffle`.
        """
        self._size = size
        self._rank, self._world_size = rank, world_size
        self._batch_size = batch_size
        self._seed = seed
        self._drop_last = drop_last
        self._shuffle = shuffle
        self._given = order
        self._epoch = 0
        self._share = self.share(0, StepSize(1, world_size))

    def start_at(self, position: Position, step: StepSize) -> Share:
        """The next iteration yields what is left of the epoch at this position, in steps of this size."""
        self._epoch = position.epoch
        self._share = self.share(position.consumed, step)
        return self._share

    def share(self, consumed: int, step: StepSize) -> Share:
        """How the rest of the epoch is shared between the ranks after this number of consumed samples."""
        return Share(self._size, consumed, self._rank, self._world_size, self._batch_size, step, self._drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return self._share.pick(self._order())

    def __len__(self) -> int:
        return self._share.batches

    def _order(self) -> Sequence[int]:
        if self._given is not None:
            order: Sequence[int] = self._given(self._epoch)
            if len(order) != self._size:
                raise MisuseError(
                    f"the sampler yields {len(order)} samples in epoch {self._epoch + 1}, but its length is "
                    f"{self._size}: make `__len__` say what it yields"
                )
            return order
        if not self._shuffle:
            return range(self._size)
        generator = torch.Generator()
        generator.manual_seed(self._seed + self._epoch)
        permutation: list[int] = torch.randperm(self._size, generator=generator).tolist()
        return permutation
