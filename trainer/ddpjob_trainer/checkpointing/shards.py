"""An optimizer's state of which each rank has a part, in one checkpoint: rank 0 has no more than a piece of the rest.

The ranks tell rank 0 what they have, and it pulls each tensor when it writes it to its place in the file. All know the
order, which is the file's.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from ddpjob_trainer.checkpointing.background import Background
from ddpjob_trainer.checkpointing.host_copies import HostCopies
from ddpjob_trainer.checkpointing.snapshot import OPTIMIZER, Snapshot, TrainingState, state_of
from ddpjob_trainer.checkpointing.tensor_file import PIECE, Elsewhere, in_order, piece_of, pieces
from ddpjob_trainer.checkpointing.tree import Copy, items_of, to_json, with_items
from ddpjob_trainer.process.exchange import Exchange
from ddpjob_trainer.process.lifetime import keep_forever
from ddpjob_trainer.process.patience import wait_for_first

_FOREVER: Final = timedelta(days=7)
"""Rank 0 writes as long as it takes; the others notice at once if it is gone."""
_STATE: Final = "state"


@dataclass(frozen=True, slots=True)
class _Part:
    """What a rank has of the optimizer's state."""

    items: list[Any]
    """Of its parameters, as in the manifest."""
    groups: str
    """The same on all ranks if the optimizer's settings are."""
    tensors: Mapping[str, torch.Tensor]


class Shards:
    """Moves the parts of the ranks to the file that rank 0 writes."""

    def __init__(self, exchange: Exchange) -> None:
        """Args:
        exchange: of the ranks.
        """
        self._exchange = exchange
        self._group: dist.ProcessGroup | None = None
        self._copies = HostCopies()

    def check(self, state: TrainingState, *, asynchronous: bool) -> None:
        """Check that the parts can be moved.

        Raises:
            TypeError: they cannot.
        """
        if state.owners is not None and asynchronous and dist.get_backend() == "mpi":
            raise TypeError(
                "with the backend mpi, shard_optimizer cannot save asynchronously: use gloo, or save at once"
            )

    def parts(self, state: TrainingState, step: int, reason: str | None) -> tuple[str | None, list[Any]]:
        """On rank 0, while the others `give`: why the checkpoint cannot be saved, and what the others have.

        Args:
            state: of the training.
            step: of the checkpoint.
            reason: why rank 0 cannot save it.
        """
        if state.owners is None:
            return reason, []
        # The others wait for this in any case.
        part = None if reason is not None else _part_of(state, _itself)
        return self._exchanged(step, part, reason)

    def give(self, state: TrainingState, step: int, background: Background, *, asynchronous: bool) -> None:
        """On another rank: give rank 0 what this one has, or copy it and begin to, after a previous one.

        Args:
            state: of the training.
            step: of the checkpoint.
            background: of this rank.
            asynchronous: whether to return once it is copied.

        Raises:
            RuntimeError: rank 0 is gone.
        """
        reason, part = background.wait(), None
        try:
            part = _part_of(state, self._copies.copy if asynchronous else _itself)
        except TypeError as unsuitable:
            reason = f"no checkpoint at step {step}: {unsuitable}"
        reason, _ = self._exchanged(step, part, reason)
        if reason is not None or part is None:
            return
        tensors = part.tensors

        def send() -> str | None:
            self._copies.wait()
            for _, tensor in in_order(tensors):
                for index in pieces(tensor.shape, tensor.element_size()):
                    piece = piece_of(tensor, index)
                    if piece.numel():
                        dist.send(piece, 0, group=self._group)
            return None

        if asynchronous:
            background.start(send)
        else:
            send()

    def _exchanged(self, step: int, part: _Part | None, reason: str | None) -> tuple[str | None, list[Any]]:
        """Why the checkpoint cannot be saved, the same on all ranks, and what each has."""
        wait_for_first()
        if self._group is None and dist.get_world_size() > 1:
            self._group = _connected()
        own: list[Any] = [reason]
        if part is not None:
            own += [part.items, part.groups, [_form(name, each) for name, each in part.tensors.items()]]
        every = [json.loads(each) for each in self._exchange.gather_bytes(json.dumps(own).encode())]
        found = next((each for each, *_ in every if each is not None), None)
        if found is not None:
            return found, []
        for rank, (_, _, groups, _) in enumerate(every):
            if groups != every[0][2]:
                found = (
                    f"no checkpoint at step {step}: the optimizer's groups have other values on rank {rank} than on "
                    "rank 0: it computes over all parameters, which shard_optimizer cannot divide"
                )
        return found, every

    @contextmanager
    def whole(self, snapshot: Snapshot, every: list[Any]) -> Iterator[Snapshot]:
        """A snapshot of rank 0 with the tensors of the others, each of which can be written once, in the file's order.

        Raises:
            RuntimeError: a rank is gone.
        """
        received: Iterator[torch.Tensor] = iter(())
        if not every:
            yield snapshot
            return
        elsewhere, ranks, items = dict[str, Elsewhere](), dict[str, int](), list[Any]()
        for rank, (_, found, _, forms) in enumerate(every):
            if rank == 0:
                continue
            items += found
            for name, dtype, shape in forms:
                elsewhere[name] = Elsewhere(getattr(torch, dtype), torch.Size(shape), lambda: next(received))
                ranks[name] = rank
        received = self._received([(ranks[name], each) for name, each in in_order(elsewhere)])
        optimizer = with_items(snapshot.manifest[OPTIMIZER], _STATE, lambda own: _by_number([*own, *items]))
        tensors: dict[str, Mapping[str, torch.Tensor | Elsewhere]] = {
            **snapshot.tensors,
            OPTIMIZER: {**snapshot.tensors[OPTIMIZER], **elsewhere},
        }
        try:
            yield replace(snapshot, manifest={**snapshot.manifest, OPTIMIZER: optimizer}, tensors=tensors)
        finally:
            # The others send everything, whatever has become of the file.
            for _ in received:
                pass

    def _received(self, expected: list[tuple[int, Elsewhere]]) -> Iterator[torch.Tensor]:
        # Each piece is valid until the next one.
        most = max((each.numel() * each.element_size() for _, each in expected), default=0)
        buffer = torch.empty(min(most, PIECE), dtype=torch.uint8)
        for rank, tensor in expected:
            form = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            for index in pieces(tensor.shape, tensor.element_size()):
                piece = buffer[: form[index].nbytes]
                if piece.numel():
                    dist.recv(piece, rank, group=self._group)
                yield piece


def _part_of(state: TrainingState, copy: Copy) -> _Part:
    """What this rank has of the optimizer's state.

    Args:
        state: of the training.
        copy: of the tensors.

    Raises:
        TypeError: it holds something that a checkpoint cannot.
    """
    whole, tensors = state_of(state.optimizer, OPTIMIZER), dict[str, torch.Tensor]()
    owners, rank = state.owners or (), dist.get_rank()
    own = {key: value for key, value in whole[_STATE].items() if _is_of(key, owners, rank)}
    items = items_of(to_json({_STATE: own}, OPTIMIZER, tensors, copy, {}), _STATE)
    groups = json.dumps(to_json(whole["param_groups"], OPTIMIZER, {}, _itself))
    return _Part(items, hashlib.sha256(groups.encode()).hexdigest(), tensors)


def _is_of(key: object, owners: Sequence[int], rank: int) -> bool:
    """Whether a rank has the state of a parameter with this number; rank 0 has what is of no parameter."""
    if isinstance(key, int) and key < len(owners):
        return owners[key] == rank
    return rank == 0


def own_state(optimizer: Any, state: TrainingState) -> Any:  # noqa: ANN401 of the manifest
    """What a rank needs of the optimizer's state in a manifest."""
    if state.owners is None:
        return optimizer
    owners, rank = state.owners, dist.get_rank()
    return with_items(optimizer, _STATE, lambda items: [each for each in items if _is_of(each[0], owners, rank)])


def _itself(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _form(name: str, tensor: torch.Tensor) -> list[Any]:
    return [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def _by_number(items: list[Any]) -> list[Any]:
    numbered = {key: value for key, value in items if isinstance(key, int)}
    return [
        *([key, numbered[key]] for key in sorted(numbered)),
        *(each for each in items if not isinstance(each[0], int)),
    ]


def _connected() -> dist.ProcessGroup | None:
    """Connections of their own, which a thread may use while the training uses the others; MPI has none."""
    if dist.get_backend() == "mpi":
        return None
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_FOREVER)
    keep_forever(group)
    return group
