"""The order in which a sampler or batch sampler of one's own reads an epoch: the same on all ranks and after a resume.

A sampler draws from torch's, Python's or NumPy's generator, or from a generator of its own. All of them are seeded by
the epoch before it is asked, so that every rank knows the order of the whole epoch, and takes its share of it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import torch

from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

_MOST: Final = 2**31
"""Items of an epoch: a sampler that never ends has more."""


class Order:
    """What a sampler says of an epoch; the newest one is remembered."""

    def __init__(self, sampler: Iterable[Any], group: Group, seed: int) -> None:
        """Args:
        sampler: yields indices, or lists of them.
        group: the processes of the training.
        seed: its orders depend on it and on the epoch's number.
        """
        self._sampler = sampler
        self._group = group
        self._seed = seed
        self._known: tuple[int, list[Any]] | None = None

    def __call__(self, epoch: int) -> Sequence[Any]:
        """The whole epoch, of all ranks together; a collective when an epoch is asked for the first time.

        Raises:
            MisuseError: the ranks disagree on it, or it has no end; on all ranks.
        """
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, self._agreed(epoch))
        return self._known[1]

    def _agreed(self, epoch: int) -> list[Any]:
        seed_sampler(self._sampler, randomness.seed_of(self._seed, epoch), epoch)
        with randomness.Stream(randomness.seed_of(self._seed, epoch)):
            order = [_plain(each) for each in islice(self._sampler, _MOST)]
        digest = hashlib.sha256(json.dumps(order).encode()).digest()
        digests = self._group.exchange.gather_bytes(digest)
        other = next((rank for rank, each in enumerate(digests) if each != digests[0]), None)
        if other is not None:
            raise MisuseError(
                f"{type(self._sampler).__name__} yields other samples on rank {other} than on rank 0: it must yield "
                "those of the whole epoch on all ranks, of which each rank takes its share, and draw from torch's, "
                "Python's or NumPy's generator, or from its attribute `generator`"
            )
        return order


def seed_sampler(sampler: object, seed: int, epoch: int) -> None:
    """Let a sampler, and what it wraps, begin an epoch."""
    for each in (sampler, getattr(sampler, "sampler", None)):
        set_epoch: Callable[[int], object] | None = getattr(each, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        generator = getattr(each, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def _plain(item: Any) -> Any:  # noqa: ANN401 an index or several
    if isinstance(item, list | tuple):
        return [_plain(each) for each in item]
    if isinstance(item, torch.Tensor):
        return item.tolist()
    return item if isinstance(item, str) else int(item)
