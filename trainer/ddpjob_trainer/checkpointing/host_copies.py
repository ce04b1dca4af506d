"""Copies of tensors in the host's memory, made so quickly that a training hardly notices."""

from dataclasses import dataclass

import torch


class ChangedError(RuntimeError):
    """A tensor was changed before its copy was made."""


@dataclass(frozen=True, slots=True)
class LaterCopy:
    """A copy that is still to be made."""

    name: str
    source: torch.Tensor
    version: int
    """How often it had been changed when the copy was asked for."""
    buffer: torch.Tensor

    def make(self) -> None:
        """Copy, in any thread."""
        self.buffer.copy_(self.source)

    def check(self) -> None:
        """After all copies: torch counts a change when it is done, and a copy may have met one that was under way.

        Raises:
            ChangedError: it has been changed; torch does not count what is changed through `.data`.
        """
        if self.source._version != self.version:  # noqa: SLF001 torch counts changes nowhere else
            raise ChangedError(
                f"{self.name} was changed between the save and the optimizer's next step, while it was copied beside "
                "the training: change it in a listener's step_finished, or save without asynchronous"
            )


class HostCopies:
    """Copies tensors by name into memory that it keeps.

    The first page of fresh memory that is touched costs the kernel more than the copy: 152 MB take 470 ms into fresh
    memory and 13 ms into used one. A copy is therefore sound only until the next one of the same name.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def copy(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy of a tensor; of one on a GPU it is sound once `wait` has returned."""
        buffer = self._buffer(name, tensor)
        buffer.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        if tensor.is_cuda:
            # What the training does next to the tensor is queued behind the copy.
            self._copied = torch.cuda.Event(blocking=True)
            self._copied.record()
        return buffer

    def copy_later(self, name: str, tensor: torch.Tensor) -> LaterCopy:
        """The memory for a copy of a tensor that is not on a GPU, and what will make it."""
        source = tensor.detach()
        return LaterCopy(name, source, source._version, self._buffer(name, tensor))  # noqa: SLF001 as above

    def wait(self) -> None:
        """Return when all copies are there; another thread than the one that trains may wait."""
        if self._copied is not None:
            self._copied.synchronize()

    def reserve(self, name: str, tensor: torch.Tensor) -> None:
        """Have the memory for copies of a tensor ready."""
        # Not before it is written to does the kernel provide it.
        self._buffer(name, tensor).zero_()

    def _buffer(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            # Only memory that the kernel cannot move is copied to while the GPU goes on.
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[name] = buffer
        return buffer
