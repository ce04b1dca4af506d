"""Which rank reads which sample: torch's DistributedSampler, but able to start in the middle of an epoch.

An epoch is one order of all samples, the same on every rank. Of its remaining samples, rank r of w takes every w-th
from the r-th on: after k steps with b samples per rank exactly the first k * b * w are consumed, whatever w was.
That is why a position is one number, and why a training may continue with another number of ranks.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import DistributedSampler

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Share
from ddpjob_trainer.process.environment import MisuseError


class ResumableSampler(DistributedSampler):  # type: ignore[misc]  # torch has no types where it is not installed
    """Indices of this rank's samples in the rest of an epoch.

    By default the order is that of DistributedSampler with the same seed. Samples are repeated only if the last step
    has fewer samples than ranks, since a rank without any could not take part in it.
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
        batch_size: samples per rank and step.
        seed: the order of an epoch depends on it and on the epoch's number.
        drop_last: leave out the samples that do not fill a batch on all ranks.
        shuffle: in another order in each epoch.
        order: gives the indices of an epoch, of all ranks together, always the same ones; None follows `shuffle`.
        """
        super().__init__(range(size), num_replicas=world_size, rank=rank, seed=seed, shuffle=shuffle)
        self._given = order
        self._batch_size = batch_size
        # Not torch's option of this name, which gives ranks, and not batches, the same length.
        self._whole_batches = drop_last
        self._consumed = 0

    def start_at(self, position: Position) -> None:
        """The next iteration yields what is left of the epoch at this position."""
        self.set_epoch(position.epoch)
        self._consumed = position.consumed

    def share(self, consumed: int = 0) -> Share:
        """How the rest of the epoch is shared between the ranks after this number of consumed samples."""
        return Share(len(self.dataset), consumed, self.rank, self.num_replicas, self._batch_size, self._whole_batches)

    def __iter__(self) -> Iterator[int]:
        return iter(self.share(self._consumed).pick(self._order()))

    def __len__(self) -> int:
        return self.share(self._consumed).length

    def _order(self) -> Sequence[int]:
        if self._given is not None:
            order: Sequence[int] = self._given(self.epoch)
            if len(order) != len(self.dataset):
                raise MisuseError(
                    f"the sampler yields {len(order)} samples in epoch {self.epoch + 1}, but its length is "
                    f"{len(self.dataset)}: make `__len__` say what it yields"
                )
            return order
        if not self.shuffle:
            return range(len(self.dataset))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        permutation: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        return permutation
