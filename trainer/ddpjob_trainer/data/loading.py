"""The batches of a rank: its part of the data set, from the training's position on, loaded by torch's DataLoader."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer.data.alike import check_alike
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sampler import ResumableBatches
from ddpjob_trainer.data.sharing import Part, StepSize
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

Collate = Callable[[list[Any]], Any]
"""Makes a batch of samples."""


class Loading:
    """Loads what this rank trains on, epoch by epoch."""

    divides = True

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
        shuffle: bool = True,
        order: Callable[[int], Sequence[int]] | None = None,
        size: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
        dataset: with a length; the same on all ranks, each reads its own part.
        group: the processes of the training.
        batch_size: samples per batch at most.
        seed: decides the order of the samples.
        drop_last: leave out the samples that do not fill a batch on all ranks.
        workers: processes that load data; 0 loads it in this one.
        collate_fn: makes a batch of samples; None is torch's own.
        shuffle: in another order in each epoch.
        order: gives the indices of an epoch, of all ranks together; None follows `shuffle`.
        size: how many these are; None: those of the data set.
        options: further ones of torch's DataLoader.
        """
        self._group = group
        self.batch_size = batch_size
        self._seed = seed
        self._size = len(dataset) if size is None else size
        self._batch_sampler = ResumableBatches(
            self._size,
            rank=group.rank,
            world_size=group.world_size,
            batch_size=batch_size,
            seed=seed,
            drop_last=drop_last,
            shuffle=shuffle,
            order=order,
        )
        self._generator = torch.Generator()
        more = dict(options or {})
        init = more.pop("worker_init_fn", None)
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._batch_sampler,
            num_workers=workers,
            collate_fn=collate_fn,
            pin_memory=more.pop("pin_memory", False) or group.device.type == "cuda",
            # By default it would draw from the generator whose state is saved, once per iteration.
            generator=self._generator,
            worker_init_fn=partial(leave_signals_to_the_trainer, init),
            **more,
        )

    def check(self) -> None:
        """Check that there are samples to train on, and that all ranks have the same ones; a collective.

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
        check_alike(self._loader.dataset, self._group)
        if self._size == 0:
            raise MisuseError("the data set is empty: check the path that the program reads it from")

    def check_step(self, step: StepSize) -> None:
        """Check that an epoch has a step of this size.

        Raises:
            MisuseError: it has none; on all ranks.
        """
        if self.steps(0, step) == 0:
            raise MisuseError(
                f"the data set has {self._size} samples, fewer than {step.ranks} x {self.batch_size}, a batch for each "
                "rank, and drop_last leaves them out: use smaller batches, or remove drop_last"
            )

    def steps(self, consumed: int, step: StepSize) -> int:
        """Steps of the optimizer in the rest of an epoch, after this number of consumed samples."""
        return self._batch_sampler.share(consumed, step).steps

    def batches(self, position: Position, step: StepSize) -> Iterator[tuple[Any, Part]]:
        """What is left of the epoch for this rank; call it again only when that has ended.

        Args:
            position: in the epoch.
            step: its size.
        """
        share = self._batch_sampler.start_at(position, step)
        # The loader first: it may end without what the share expects, which is an error.
        return zip(self._batches(position), share.parts(), strict=True)

    def _batches(self, position: Position) -> Iterable[Any]:
        # The loader's processes draw from it: neither two ranks, nor the rest of an epoch and its beginning, may
        # augment their samples with the same numbers.
        seed = randomness.seed_of(self._seed, position.epoch, position.consumed, self._group.rank)
        self._generator.manual_seed(seed)
        loader: Iterable[Any] = self._loader
        return loader


def leave_signals_to_the_trainer(init: Callable[[int], None] | None, worker: int) -> None:
    """In a process of a DataLoader: let no signal to the rank reach it, and call the user's own function.

    torchrun signals a rank's whole process group. A loader process killed by it would fail the rank, which still has to
    save.
    """
    os.setpgid(0, 0)
    if init is not None:
        init(worker)
