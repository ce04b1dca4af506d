"""Reads a checkpoint on rank 0 and gives each tensor to all ranks, a piece at a time."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ddpjob_trainer.checkpointing.ancestry import JobIdentity, nothing_to_resume, older_stores, was_there
from ddpjob_trainer.checkpointing.plain_files import open_plain
from ddpjob_trainer.checkpointing.restoring import Form, Name
from ddpjob_trainer.checkpointing.snapshot import FILES, FORMAT
from ddpjob_trainer.checkpointing.storage import Checkpoint, ResumeError
from ddpjob_trainer.checkpointing.store import CheckpointStore
from ddpjob_trainer.checkpointing.tensor_file import TensorReader, pieces
from ddpjob_trainer.process.exchange import Exchange

_log = logging.getLogger(__name__)


Index = tuple[int | slice, ...]


class Source(Protocol):
    """Where the values of tensors come from."""

    def read(self, name: Name, index: Index, begin: int, into: memoryview) -> None:
        """Fill a buffer with a piece of a tensor: that of an index, whose first byte in the tensor is `begin`.

        Raises:
            OSError: it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint whose files are open."""

    manifest: dict[str, Any]
    readers: dict[str, TensorReader]
    """By file."""
    close: Callable[[], None]

    @property
    def forms(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        """File, name, type and shape of each tensor, as they follow each other."""
        return [
            (file, name, str(found.dtype).removeprefix("torch."), found.shape)
            for file, reader in self.readers.items()
            for name, found in reader.tensors.items()
        ]

    def read(self, name: Name, index: Index, begin: int, into: memoryview) -> None:  # noqa: ARG002 in a file it is where it begins
        """Fill a buffer with a piece of a tensor."""
        reader = self.readers[name[0]]
        reader.read(reader.tensors[name[1]].begin + begin, into)


def open_to_continue(store: CheckpointStore, owner: JobIdentity | None, resume_from: str | None) -> Opened | None:
    """Open what a training continues from: its own newest intact checkpoint, or that of an older job.

    Args:
        store: of the training.
        owner: the job that it belongs to.
        resume_from: name of the older job.

    Raises:
        ResumeError: there are checkpoints, but none can be used; or the older job has none.
    """
    found = open_newest(store)
    if found is not None:
        return found
    damaged = store.versions()
    if damaged:
        raise ResumeError(
            f"none of the {len(damaged)} checkpoint(s) in {store} is intact: move them away to train from scratch"
        )
    if resume_from is None or owner is None:
        return None
    for older in older_stores(store, owner, resume_from):
        found = open_newest(older)
        if found is not None:
            return found
    if store.part is not None and was_there(store, owner, resume_from):
        # The older job ended before this one of its trainings had begun.
        return None
    raise nothing_to_resume(store, owner, resume_from)


def open_newest(store: CheckpointStore) -> Opened | None:
    """Open the newest intact checkpoint.

    Raises:
        ResumeError: it cannot be read, or has another format.
    """
    for checkpoint in store.newest():
        opened = _open(checkpoint)
        if opened is not None:
            _log.info("resuming from %s", checkpoint.name)
            return opened
    return None


def open_step(store: CheckpointStore, step: int) -> Opened | None:
    """Open the newest intact checkpoint of a step.

    Raises:
        ResumeError: one cannot be read, or has another format.
    """
    for checkpoint in store.newest():
        if checkpoint.version.step == step and (opened := _open(checkpoint)) is not None:
            return opened
    return None


def _open(checkpoint: Checkpoint) -> Opened | None:
    """The checkpoint, None for one whose files are as they were written and hold no tensors, which is logged.

    Sums say that a file is what its writer meant, and not that the writer was this library.
    """
    manifest = checkpoint.manifest
    if manifest.get("format") != FORMAT:
        raise ResumeError(
            f"the checkpoint {checkpoint.name} has format {manifest.get('format')}, but this library reads "
            f"{FORMAT}: resume with the version of ddpjob that saved it"
        )
    with ExitStack() as stack:
        readers = dict[str, TensorReader]()
        for name in FILES:
            path = checkpoint.folder / f"{name}.safetensors"
            try:
                stream = stack.enter_context(open_plain(path))
                readers[name] = TensorReader(stream, path.stat().st_size)
            except (FileNotFoundError, ValueError) as reason:
                _log.error("the checkpoint %s is skipped: %s.safetensors: %s", checkpoint.name, name, reason)
                return None
            except OSError as reason:
                raise ResumeError(f"{path} cannot be read: {reason}") from reason
        return Opened(manifest, readers, stack.pop_all().close)


def forms_of(listed: list[list[Any]]) -> dict[Name, Form]:
    """Types and shapes by file and name, from what `Opened.forms` is as JSON."""
    return {(file, name): (getattr(torch, dtype), tuple(shape)) for file, name, dtype, shape in listed}


def distribute(
    exchange: Exchange,
    forms: dict[Name, Form],
    source: Source | None,
    target: Callable[[Name], torch.Tensor | None],
    *,
    by: int = 0,
) -> None:
    """Put the values of all tensors into their targets, on every rank.

    Args:
        exchange: of the ranks.
        forms: of the tensors, the same on all ranks.
        source: what one rank reads; None on the others.
        target: where a rank puts a tensor, of the same type and shape; None if it does not need it.
        by: the rank that reads.

    Raises:
        StreamError: the rank cannot read a tensor; on every rank.
    """
    parts = list(_parts(forms))

    def read(number: int, into: memoryview) -> None:
        if source is not None:
            name, index, begin, _ = parts[number]
            source.read(name, index, begin, into)

    stream = exchange.stream([size for *_, size in parts], read, by)
    for (name, index, _, _), data in zip(parts, stream, strict=True):
        whole = target(name)
        if whole is not None:
            # What it belongs to is written to like a state that is loaded: without a gradient.
            piece = whole.detach()[index]
            piece.copy_(data.view(whole.dtype).view(piece.shape))


def _parts(forms: dict[Name, Form]) -> Iterator[tuple[Name, Index, int, int]]:
    """Name and index of each piece of each tensor, its first byte in the tensor, and its bytes."""
    for name, (dtype, shape) in forms.items():
        begin = 0
        form = torch.empty(shape, dtype=dtype, device="meta")
        for index in pieces(shape, dtype.itemsize):
            size = form[index].nbytes
            if size:
                yield name, index, begin, size
            begin += size
