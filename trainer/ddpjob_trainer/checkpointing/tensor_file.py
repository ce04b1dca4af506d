"""Writes and reads tensors in the safetensors format piece by piece, without blocking other threads.

`safetensors.torch` holds Python's lock while it copies and writes, which would pause the training, whichever thread
calls it, and it reads whole files. The format is 8 bytes with the header's length, the header as JSON, then the
tensors (https://github.com/huggingface/safetensors#format).
"""

import io
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

PIECE: Final = 1 << 24
"""Bytes of a tensor that are moved at once, at most."""

_ALIGNMENT: Final = 8
_LONGEST_HEADER: Final = 100_000_000
"""Bytes, as in other readers of the format."""
_TYPES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_NAMES: Final = {short: name for name, short in _TYPES.items()}

Index = tuple[int | slice, ...]
"""Selects a part of a tensor, as a view."""


def type_in_file(name: str, dtype: torch.dtype) -> str:
    """What the format calls a type.

    Raises:
        TypeError: it does not have it; the message has the tensor's name.
    """
    own = str(dtype).removeprefix("torch.")
    found = _TYPES.get(own)
    if found is None:
        raise TypeError(f"{name} is a tensor of {own}, which the safetensors format cannot hold")
    return found


def pieces(shape: Sequence[int], itemsize: int) -> Iterator[Index]:
    """Parts of a tensor of at most `PIECE` bytes, in the order of a file.

    Args:
        shape: of the tensor.
        itemsize: bytes of an element.
    """
    if not shape or math.prod(shape) * itemsize <= PIECE:
        yield ()
        return
    row = math.prod(shape[1:]) * itemsize
    if row > PIECE:
        for index in range(shape[0]):
            yield from ((index, *rest) for rest in pieces(shape[1:], itemsize))
        return
    count = PIECE // row
    for begin in range(0, shape[0], count):
        yield (slice(begin, begin + count),)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A tensor that this process does not have, and is given in pieces."""

    dtype: torch.dtype
    shape: torch.Size
    fetch: Callable[[], torch.Tensor]
    """Gives the next piece, as bytes that are valid until the one after it."""

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


_Written = TypeVar("_Written", torch.Tensor, Elsewhere, torch.Tensor | Elsewhere)


def in_order(tensors: Mapping[str, _Written]) -> list[tuple[str, _Written]]:
    """Tensors as they follow each other in a file, whatever others are between them."""
    # The largest elements first, so that each tensor begins at a multiple of its element size, as readers expect.
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def piece_of(tensor: torch.Tensor, index: Index) -> torch.Tensor:
    """A piece of a tensor as bytes in the host's memory."""
    # As bytes, since NumPy does not have every type of torch.
    return tensor.detach()[index].cpu().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def write_tensors(tensors: Mapping[str, torch.Tensor | Elsewhere], file: Path) -> None:
    """Write tensors by name into a file that `safetensors.torch.load_file` reads.

    Of a tensor that is not contiguous, or not in the host's memory, only a piece at a time is copied.

    Args:
        tensors: of any layout with strides, on any device, or elsewhere.
        file: is created or replaced.

    Raises:
        TypeError: the format does not have a tensor's type; the message names the tensor.
        OSError: the file cannot be written.
    """
    ordered = in_order(tensors)
    header: dict[str, object] = {}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        dtype = type_in_file(name, tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in ordered:
            for index in pieces(tensor.shape, tensor.element_size()):
                piece = tensor.fetch() if isinstance(tensor, Elsewhere) else piece_of(tensor, index)
                if piece.numel():
                    stream.write(memoryview(piece.numpy()))


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """Its first byte in the file."""


class TensorReader:
    """Reads tensors of one file."""

    def __init__(self, stream: io.BufferedIOBase, size: int) -> None:
        """Args:
        stream: the file, which can seek.
        size: bytes of the file.

        Raises:
            ValueError: it is no such file.
            OSError: it cannot be read.
        """
        self._stream = stream
        self.tensors = _header(stream, size)
        """By name, in the order of the file."""

    def read(self, begin: int, into: memoryview) -> None:
        """Fill a buffer with the bytes of the file from `begin` on.

        Raises:
            OSError: it cannot be read, or ends before.
        """
        self._stream.seek(begin)
        done = 0
        while done < len(into):
            count = self._stream.readinto(into[done:])
            if not count:
                raise OSError("a checkpoint's file ends too early")
            done += count


def _header(stream: io.BufferedIOBase, size: int) -> dict[str, Stored]:
    try:
        (length,) = struct.unpack("<Q", stream.read(8))
        start = 8 + length
        # A length that cannot be leaves no text, which is not JSON.
        header = json.loads(stream.read(length) if start <= size and length <= _LONGEST_HEADER else b"")
        header.pop("__metadata__", None)
        found = {name: _stored(entry, start, size) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as reason:
        raise ValueError(f"not a file of tensors: {type(reason).__name__}: {reason}") from reason
    return dict(sorted(found.items(), key=lambda item: item[1].begin))


def _stored(entry: Mapping[str, Any], start: int, size: int) -> Stored:
    dtype, shape = getattr(torch, _NAMES[entry["dtype"]]), tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(isinstance(each, int) and each >= 0 for each in (*shape, begin, end)):
        raise ValueError("a shape or an offset is not a number")
    # What is allocated for a tensor is never more than the file has of it.
    if end - begin != math.prod(shape) * dtype.itemsize or start + end > size:
        raise ValueError("the shape of a tensor differs from its bytes")
    return Stored(dtype, shape, start + begin)
