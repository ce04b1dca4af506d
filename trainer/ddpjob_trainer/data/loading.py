"""The batches of a rank: its part of the data set, from the training's position on, loaded by torch's DataLoader."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sampler import ResumableSampler
from ddpjob_trainer.data.sharing import Part, Share
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

Collate = Callable[[list[Any]], Any]
"""Makes a batch of samples."""


class Loading:
    """Loads what this rank trains on, epoch by epoch."""

    def __init__(
        self,
        dataset: Dataset[Any],
        group: Group,
        *,
        batch_size: int,
        seed: int,
        drop_last: bool,
        workers: int,
        collate_fn: Collate | None,
    ) -> None:
        """Args:
        dataset: with a length; the same on all ranks, each reads its own part.
        group: the processes of the training.
        batch_size: samples per rank and batch.
        seed: decides the order of the samples.
        drop_last: leave out the samples that do not fill a batch on all ranks.
        workers: processes that load data; 0 loads it in this one.
        collate_fn: makes a batch of samples; None is torch's own.
        """
        self._group = group
        self._batch_size = batch_size
        self._seed = seed
        self._size = len(dataset)
        self._sampler = ResumableSampler(
            self._size,
            rank=group.rank,
            world_size=group.world_size,
            batch_size=batch_size,
            seed=seed,
            drop_last=drop_last,
        )
        self._generator = torch.Generator()
        self._loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self._sampler,
            num_workers=workers,
            collate_fn=collate_fn,
            pin_memory=group.device.type == "cuda",
            # By default it would draw from the generator whose state is saved, once per iteration.
            generator=self._generator,
            worker_init_fn=_leave_signals_to_the_trainer,
        )

    def check(self) -> None:
        """Check that there are samples to train on, and that all ranks have the same number; a collective.

        Ranks with data sets of different lengths would read some samples twice and others never, and then wait for each
        other.

        Raises:
            MisuseError: the check has failed; on all ranks.
        """
        sizes = [int(size) for size in self._group.exchange.gather_bytes(str(self._size).encode())]
        other = next((rank for rank, size in enumerate(sizes) if size != sizes[0]), None)
        if other is not None:
            raise MisuseError(
                f"the data set has {sizes[0]} samples on rank 0 and {sizes[other]} on rank {other}: it must be the "
                "same on all ranks, because each reads its own part"
            )
        if self.share().steps == 0:
            raise MisuseError(_no_sample(self._size, self._batch_size, self._group.world_size))

    def share(self, consumed: int = 0) -> Share:
        """How the rest of the epoch is shared between the ranks after this number of consumed samples."""
        return self._sampler.share(consumed)

    def batches(self, position: Position, accumulate: int = 1) -> Iterator[tuple[Any, Part]]:
        """What is left of the epoch for this rank; call it again only when that has ended.

        Args:
            position: in the epoch.
            accumulate: batches per step of the optimizer.
        """
        # The loader first: it may end without what the share expects, which is an error.
        return zip(self._batches(position), self.share(position.consumed).parts(accumulate), strict=True)

    def _batches(self, position: Position) -> Iterable[Any]:
        self._sampler.start_at(position)
        # The loader's processes draw from it: neither two ranks, nor the rest of an epoch and its beginning, may
        # augment their samples with the same numbers.
        seed = randomness.seed_of(self._seed, position.epoch, position.consumed, self._group.rank)
        self._generator.manual_seed(seed)
        loader: Iterable[Any] = self._loader
        return loader


def _leave_signals_to_the_trainer(_worker: int) -> None:
    # torchrun signals a rank's whole process group. A loader process killed by it would fail the rank, which still has
    # to save.
    os.setpgid(0, 0)


def _no_sample(size: int, batch_size: int, world_size: int) -> str:
    if size == 0:
        return "the data set is empty: check the path that the program reads it from"
    return (
        f"the data set has {size} samples, fewer than {world_size} x {batch_size}, a batch for each rank, and "
        "drop_last leaves them out: use smaller batches, or remove drop_last"
    )
