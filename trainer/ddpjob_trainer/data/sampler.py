"""Who reads which sample: torch's DistributedSampler that can start in the middle of an epoch.

An epoch is one order of all samples, the same on every rank. Of what is left of it, rank r of w takes every w-th sample
from the r-th on, so that after k steps with b samples a rank exactly the first k * b * w are consumed, whatever w was.
That is why a position is one number, and why a training may go on with another number of ranks.
"""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DistributedSampler

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Share


class ResumableSampler(DistributedSampler):  # type: ignore[misc]  # torch has no types where it is not installed
    """Indices of this rank's samples in the rest of an epoch.

    The order is that of DistributedSampler with the same seed. Only where the last step has fewer samples than ranks
    are samples repeated, since a rank without any could not take part in it.
    """

    def __init__(
        self, size: int, *, rank: int, world_size: int, batch_size: int, seed: int, drop_last: bool = False
    ) -> None:
        """Args:
        size: samples in the data set.
        rank: of this process.
        world_size: number of processes.
        batch_size: samples a process and step.
        seed: the order of an epoch depends on it and on the epoch's number.
        drop_last: leave out what is too little for whole batches on all ranks.
        """
        super().__init__(range(size), num_replicas=world_size, rank=rank, seed=seed)
        self._batch_size = batch_size
        # Not torch's own of this name, which cuts ranks and not batches to one length.
        self._whole_batches = drop_last
        self._consumed = 0

    def start_at(self, position: Position) -> None:
        """The next iteration yields what is left of the epoch at this position."""
        self.set_epoch(position.epoch)
        self._consumed = position.consumed

    def share(self, consumed: int = 0) -> Share:
        """How the epoch is shared out once so many of its samples are consumed."""
        return Share(len(self.dataset), consumed, self.rank, self.num_replicas, self._batch_size, self._whole_batches)

    def __iter__(self) -> Iterator[int]:
        return iter(self.share(self._consumed).pick(self._order()))

    def __len__(self) -> int:
        return self.share(self._consumed).length

    def _order(self) -> Sequence[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        return order
