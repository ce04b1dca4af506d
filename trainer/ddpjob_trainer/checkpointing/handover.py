"""Gives the state of one rank to all others, from its memory: what a resume does from a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ddpjob_trainer.checkpointing.reading import Index, distribute, forms_of
from ddpjob_trainer.checkpointing.restoring import Name, Restoring
from ddpjob_trainer.checkpointing.snapshot import Snapshot, TrainingState
from ddpjob_trainer.checkpointing.tensor_file import piece_of
from ddpjob_trainer.process.exchange import Exchange


@dataclass(frozen=True, slots=True)
class _Memory:
    """The tensors of a snapshot."""

    tensors: Mapping[str, Mapping[str, torch.Tensor]]

    def read(self, name: Name, index: Index, begin: int, into: memoryview) -> None:  # noqa: ARG002 in memory the index says it
        file, key = name
        into[:] = memoryview(piece_of(self.tensors[file][key], index).numpy()).cast("B")


def hand_over(exchange: Exchange, state: TrainingState, own: Snapshot | None, source: int) -> dict[str, Any]:
    """Bring the training of every rank to the state that one of them has kept; all ranks call it together.

    Args:
        exchange: between the ranks.
        state: of the training on this rank, as it was set up.
        own: what the source has kept; other ranks' are ignored.
        source: the rank whose state it becomes.

    Returns:
        The manifest of the source's snapshot.

    Raises:
        MisfitError: the training was set up in another way than that of the source.
    """
    tensors = {} if own is None else {file: _whole(found) for file, found in own.tensors.items()}
    listed = [
        (file, name, str(each.dtype).removeprefix("torch."), list(each.shape))
        for file, found in tensors.items()
        for name, each in found.items()
    ]
    manifest, forms = exchange.broadcast_json([None if own is None else own.manifest, listed], source)
    restoring = Restoring(state, manifest, forms_of(forms))
    distribute(exchange, forms_of(forms), None if own is None else _Memory(tensors), restoring.target, by=source)
    restoring.finish()
    found: dict[str, Any] = manifest
    return found


def _whole(tensors: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: each for name, each in tensors.items() if isinstance(each, torch.Tensor)}
