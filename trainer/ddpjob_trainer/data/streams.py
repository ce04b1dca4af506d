"""Batches of which nothing is known before they are read: those of an IterableDataset, or of any other iterable.

If all ranks read the same batches, these are dealt out: rank r of w takes every w-th from the r-th on. Otherwise each
rank has a stream of its own, and takes all of it.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Final

import torch

from ddpjob_trainer.data.orders import seed_sampler
from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Part, StepSize, within_step
from ddpjob_trainer.process import randomness
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

_END: Final = object()
_GLANCE: Final = 64
"""About how many numbers of a tensor are compared."""

_log = logging.getLogger(__name__)


class Stream:
    """A source of batches that come one after the other; itself a state, for checkpoints.

    A resume reads what was read before and leaves it out, unless the loader has a state of its own, such as torchdata's
    StatefulDataLoader. Streams of the ranks' own need the same number of ranks.
    """

    def __init__(self, loader: Iterable[Any], group: Group, seed: int) -> None:
        """Args:
        loader: read from the beginning in each epoch.
        group: the processes of the training.
        seed: of what it draws.
        """
        # Of any type, perhaps with a state.
        self._loader: Any = loader
        self._group = group
        self._seed = seed
        self._stateful = callable(getattr(loader, "state_dict", None))
        self._dealt: bool | None = None
        # Of the loader on each rank, as JSON, to be saved.
        self._gathered: list[str] = []
        # Of the loader on this rank, to continue from.
        self._state: Any = None

    divides = False

    @property
    def obstacle(self) -> str | None:
        """Why it could not be read again from an earlier position, in this process; None if it can."""
        if self._stateful:
            return "the loader has a state of its own, which is ahead of the last committed step"
        if isinstance(self._loader, Iterator):
            return "the loader can be read only once"
        if self._dealt is False:
            return "each rank reads data of its own, which a new process would have to find again"
        return None

    @property
    def batch_size(self) -> int:
        """Samples per rank and batch, 0 if that is not known."""
        return batch_size_of(self._loader)

    def check(self) -> None:
        """Nothing can be checked before it is read."""

    def check_step(self, step: StepSize) -> None:
        """Likewise."""

    def steps(self, consumed: int, step: StepSize) -> int | None:  # noqa: ARG002 as a Source
        """Unknown: a length that an iterable names is an estimate."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """How far it was read."""
        own = self._loader.state_dict() if self._stateful and self._dealt is not False else None
        world = self._group.world_size
        return {"dealt": self._dealt, "worldSize": world, "state": own, "states": self._gathered}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from there.

        Raises:
            ValueError: the streams of another number of ranks cannot be continued.
        """
        saved_by, ranks = state_dict["worldSize"], self._group.world_size
        self._dealt, self._state = state_dict["dealt"], state_dict["state"]
        if self._dealt is False and saved_by != ranks:
            raise ValueError(
                f"each of {saved_by} ranks has read a stream of its own, which {ranks} rank(s) cannot continue: start "
                f"{saved_by}"
            )
        if state_dict["states"]:
            self._state = _from_text(state_dict["states"][self._group.rank])

    def gather(self) -> None:
        """Get ready to be saved; a collective, between two steps."""
        if self._stateful and self._dealt is False:
            gathered = self._group.exchange.gather_bytes(_to_text(self._loader.state_dict()).encode())
            self._gathered = [each.decode() for each in gathered]

    def batches(self, position: Position, step: StepSize) -> Iterator[tuple[Any, Part]]:
        """What is left of the epoch for this rank.

        Raises:
            MisuseError: the ranks read nothing, or only some of them read the same.
        """
        state, self._state = self._state, None
        if state is not None:
            self._loader.load_state_dict(state)
        reader = _Reader(self._loader, randomness.seed_of(self._seed, position.epoch), position.epoch)
        first = reader.next()
        dealt = self._agreed(first)
        if first is _END:
            return
        if self._dealt is not None and dealt is not self._dealt:
            raise MisuseError("the loader reads the same batches on all ranks in one epoch, but not in another")
        self._dealt = dealt
        reader.put_back(first)
        if state is None:
            for _ in range(position.consumed):
                reader.next()
        hand_out = self._deal if dealt else self._own
        yield from hand_out(reader, position.consumed, step, first)

    def _agreed(self, first: Any) -> bool:  # noqa: ANN401 whatever the loader holds
        """Whether all ranks read the same."""
        digests = self._group.exchange.gather_bytes(b"" if first is _END else _digest(first))
        if any(digests) and not all(digests):
            empty = [rank for rank, digest in enumerate(digests) if not digest]
            raise MisuseError(f"the loader has no batch at all on rank(s) {', '.join(map(str, empty))}")
        different = len(set(digests))
        if different not in (1, len(digests)):
            raise MisuseError(
                "the loader begins with the same batch on some ranks only: it must read the same on all ranks, which "
                "then share it, or on each rank something else"
            )
        dealt = different == 1
        if self._dealt is None and self._group.world_size > 1:
            _log.info(
                "the loader reads the same on all ranks: they share its batches"
                if dealt
                else "the loader reads something else on each rank: an epoch is what all of them read"
            )
        return dealt

    def _deal(
        self,
        reader: "_Reader",
        consumed: int,
        size: StepSize,
        first: Any,  # noqa: ANN401 as above
    ) -> Iterator[tuple[Any, Part]]:
        rank, world = self._group.rank, self._group.world_size
        rounds = -(-size.batches // world)
        nominal = _size(first) * rounds
        same, step = hashlib.sha256(), 0
        while reader.more():
            total, step, left = 0, step + 1, size.batches
            for index in range(rounds):
                # All of them are read by each rank, so that all know their sizes.
                dealt = list(islice(reader, min(world, left)))
                left -= len(dealt)
                for each in dealt:
                    same.update(_glance(each))
                if index == 0 and step & (step - 1) == 0:
                    self._check_same(same.digest())
                consumed += len(dealt)
                total += sum(map(_size, dealt))
                last = index + 1 == rounds or not reader.more()
                counts = rank < len(dealt)
                batch = dealt[rank] if counts else dealt[0]
                weight = _size(batch) / nominal if counts else 0.0
                if not last:
                    yield batch, within_step(_size(batch), weight)
                    continue
                ends = not self._stateful and not reader.more()
                yield batch, Part(_size(batch), weight, True, nominal * world / total, total, consumed, ends)  # noqa: FBT003
                break

    def _check_same(self, digest: bytes) -> None:
        """Check that all ranks still read the same; a collective, ever more rarely.

        Raises:
            MisuseError: they do not.
        """
        if len(set(self._group.exchange.gather_bytes(digest))) > 1:
            raise MisuseError(
                "the loader began with the same batch on all ranks, and now reads something else on some: if each rank "
                "is to read data of its own, let it begin with a batch that no other rank has; if not, seed what the "
                "loader draws"
            )

    def _own(
        self,
        reader: "_Reader",
        consumed: int,
        size: StepSize,
        first: Any,  # noqa: ANN401 as above
    ) -> Iterator[tuple[Any, Part]]:
        world = self._group.world_size
        # A size that all ranks agree on.
        (sizes,) = self._group.sum(_size(first))
        nominal = sizes / world * size.accumulate
        while True:
            read = list(islice(reader, size.accumulate))
            more = self._stateful or reader.more()
            ranks_with_more, total = self._group.sum(float(more), float(sum(map(_size, read))))
            if total == 0:
                return
            consumed += size.accumulate
            *others, batch = read or [first]
            for each in others:
                yield each, within_step(_size(each), _size(each) / nominal)
            weight = _size(batch) / nominal if read else 0.0
            scale, ends = nominal * world / total, ranks_with_more == 0
            yield batch, Part(_size(batch), weight, True, scale, int(total), consumed, ends)  # noqa: FBT003


def _to_text(state: Any) -> str:  # noqa: ANN401 any state_dict
    def plain(tree: Any) -> Any:  # noqa: ANN401 as above
        if isinstance(tree, torch.Tensor):
            return {"$tensor": [str(tree.dtype).removeprefix("torch."), tree.tolist()]}
        if isinstance(tree, Mapping):
            return {"$items": [[plain(key), plain(value)] for key, value in tree.items()]}
        return [plain(each) for each in tree] if isinstance(tree, list | tuple) else tree

    try:
        return json.dumps(plain(state))
    except TypeError as reason:
        raise MisuseError(f"the loader's state cannot be saved without pickle ({reason})") from reason


def _from_text(text: str) -> Any:  # noqa: ANN401 any state_dict
    def rich(tree: Any) -> Any:  # noqa: ANN401 as above
        match tree:
            case {"$tensor": [dtype, values]}:
                return torch.tensor(values, dtype=getattr(torch, dtype))
            case {"$items": items}:
                return {rich(key): rich(value) for key, value in items}
            case list():
                return [rich(each) for each in tree]
        return tree

    return rich(json.loads(text))


class _Reader:
    """Reads an epoch, with random numbers that do not depend on the training's."""

    def __init__(self, loader: Iterable[Any], seed: int, epoch: int) -> None:
        self._random = randomness.Stream(seed)
        self._waiting: list[Any] = []
        for each in (loader, getattr(loader, "dataset", None), getattr(loader, "sampler", None)):
            seed_sampler(each, seed, epoch)
        with self._random:
            self._iterator = iter(loader)

    def next(self) -> Any:  # noqa: ANN401 whatever the loader holds
        if self._waiting:
            return self._waiting.pop()
        with self._random:
            return next(self._iterator, _END)

    def put_back(self, item: Any) -> None:  # noqa: ANN401 as above
        self._waiting.append(item)

    def peek(self) -> Any:  # noqa: ANN401 as above
        item = self.next()
        self.put_back(item)
        return item

    def more(self) -> bool:
        return self.peek() is not _END

    def __iter__(self) -> Iterator[Any]:
        while self.more():
            yield self.next()


def batch_size_of(loader: object) -> int:
    """What a loader, or a batch sampler, says of itself; 0 if it says nothing."""
    size = getattr(loader, "batch_size", None)
    return size if isinstance(size, int) else 0


def _size(batch: Any) -> int:  # noqa: ANN401 as above
    """Samples of a batch: the first dimension of its first tensor, or else its length."""
    tensor = next(_tensors(batch), None)
    if tensor is not None and tensor.dim() > 0:
        return len(tensor)
    return len(batch) if isinstance(batch, Sized) else 1


def _tensors(batch: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 as above
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)


def _glance(batch: Any) -> bytes:  # noqa: ANN401 as above
    """A few numbers of each tensor of a batch, as bytes."""
    found = bytearray()
    for tensor in _tensors(batch):
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(len(flat) // _GLANCE, 1)][: 2 * _GLANCE]
        found += some.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return bytes(found)


def _digest(batch: Any) -> bytes:  # noqa: ANN401 as above
    digest = hashlib.sha256()
    found = False
    for tensor in _tensors(batch):
        found = True
        digest.update(repr((tensor.shape, tensor.dtype)).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest() if found else hashlib.sha256(repr(batch).encode()).digest()
