"""The batches of a batch sampler of one's own, shared between the ranks."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ddpjob_trainer.data.alike import check_alike
from ddpjob_trainer.data.loading import leave_signals_to_the_trainer
from ddpjob_trainer.data.orders import Order
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Part, Share, StepSize, within_step
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group


class _Own:
    """The batches of this rank in the rest of an epoch, for a DataLoader."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class BatchOrder:
    """A source of batches that are known in advance: rank r of w takes every w-th of them from the r-th on.

    A position counts batches, so that a training may continue with another number of ranks.
    """

    divides = False

    def __init__(
        self,
        dataset: Dataset[Any],
        order: Order,
        group: Group,
        seed: int,
        options: Mapping[str, Any],
        *,
        batch_size: int = 0,
    ) -> None:
        """Args:
        dataset: with samples by index.
        order: the batches of an epoch, as lists of indices.
        group: the processes of the training.
        seed: of what the loader's processes draw.
        options: further ones of torch's DataLoader.
        batch_size: samples of a batch, 0 if they differ.
        """
        self.batch_size = batch_size
        more = dict(options)
        init = more.pop("worker_init_fn", None)
        self._order = order
        self._group = group
        self._seed = seed
        self._epoch = 0
        self._own = _Own()
        self._generator = torch.Generator()
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._own,
            pin_memory=more.pop("pin_memory", False) or group.device.type == "cuda",
            generator=self._generator,
            worker_init_fn=partial(leave_signals_to_the_trainer, init),
            **more,
        )

    def check(self) -> None:
        """Check that all ranks have the same samples, and that there is a batch; a collective."""
        check_alike(self._loader.dataset, self._group)
        if not self._order(0):
            raise MisuseError("the batch sampler yields no batch: check what it is made of")

    def check_step(self, step: StepSize) -> None:
        """Nothing is left out: a batch is enough for a step."""

    def steps(self, consumed: int, step: StepSize) -> int:
        """Steps of the optimizer in the rest of an epoch; of later epochs they may differ."""
        return self._share(consumed, step).steps

    def batches(self, position: Position, step: StepSize) -> Iterator[tuple[Any, Part]]:
        """What is left of the epoch for this rank."""
        self._epoch = position.epoch
        order, share = self._order(position.epoch), self._share(position.consumed, step)
        self._own.batches = [batch for (batch,) in share.pick(order)]
        seed = randomness.seed_of(self._seed, position.epoch, position.consumed, self._group.rank)
        self._generator.manual_seed(seed)
        sizes = [len(batch) for batch in order]
        return zip(self._loader, _parts(share, sizes), strict=True)

    def _share(self, consumed: int, step: StepSize) -> Share:
        # A batch is what a sample is elsewhere.
        return Share(len(self._order(self._epoch)), consumed, self._group.rank, self._group.world_size, 1, step)


def _parts(share: Share, sizes: list[int]) -> Iterator[Part]:
    """What this rank's batches are, given the sizes of all of the epoch."""
    world = share.world_size
    for places in share.ranges():
        step = sizes[places.start : places.stop]
        most, total = max(sum(step[rank::world]) for rank in range(world)), sum(step)
        # A batch that is repeated, for a rank without one of its own, is the first of the epoch.
        own = [*step[share.rank :: world], 0]
        *before, last = own[: len(share.lengths(len(places)))]
        yield from (within_step(samples, samples / most) for samples in before)
        yield Part(
            samples=last or sizes[0],
            weight=last / most,
            last=True,
            scale=most * world / total,
            total=total,
            consumed=places.stop,
            ends_epoch=places.stop == len(sizes),
        )
