"""What a tensor has in addition to its values: layout, memory that it shares, and whether a file can hold it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.parameter import UninitializedTensorMixin

from ddpjob_trainer.checkpointing.tensor_file import type_in_file

View = tuple[str, int, torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Equal for tensors that are the same view of the same memory: device, address, type, shape, strides."""


def view_of(tensor: torch.Tensor) -> View:
    """Which elements of which memory a tensor shows; only of one that `refuse` lets pass."""
    return str(tensor.device), tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as a real one with one dimension more, in the same memory; any other as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def strides_of(tensor: torch.Tensor) -> list[int] | None:
    """The strides of a tensor without gaps whose elements lie in the same order; None if it is contiguous."""
    if tensor.stride() == contiguous_strides(tensor.shape):
        return None
    strides = torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format).stride()
    return None if strides == contiguous_strides(tensor.shape) else list(strides)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has values in memory of its own at its strides: no sparse, quantized or distributed tensor."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.is_meta
        and not isinstance(tensor, UninitializedTensorMixin)
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def refuse(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that a checkpoint could not give back as it is.

    Raises:
        TypeError: with its name.
    """
    if isinstance(tensor, UninitializedTensorMixin):
        raise TypeError(f"{name} has no shape yet: run a batch through the model before the training")
    if tensor.is_meta:
        raise TypeError(f"{name} is on the meta device and has no values")
    if not is_plain(tensor):
        kinds = {"quantized": tensor.is_quantized, "nested": tensor.is_nested, type(tensor).__name__: True}
        kind = next(kind for kind, found in kinds.items() if found)
        layout = "" if tensor.layout is torch.strided else f" of layout {str(tensor.layout).removeprefix('torch.')}"
        raise TypeError(
            f"{name} is a {kind}{layout}, which a checkpoint cannot hold: keep it as ordinary tensors, "
            "or out of the state_dict"
        )
    type_in_file(name, tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype)
    if _overlaps_itself(tensor):
        raise TypeError(f"{name} shows the same memory several times, which a resume could not write to")


def refuse_shared(own: Iterable[tuple[str, torch.Tensor]], others: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Refuse tensors of which a part lies in the memory of another one: after a resume they would be apart.

    Args:
        own: by name, each view once.
        others: which may share memory with each other.

    Raises:
        TypeError: with both names.
    """
    spans = sorted(
        [_Span.of(name, tensor, own=True) for name, tensor in own if tensor.numel()]
        + [_Span.of(name, tensor, own=False) for name, tensor in others if tensor.numel()],
        key=lambda span: (span.device, span.begin),
    )
    last: _Span | None = None
    last_own: _Span | None = None
    for span in spans:
        before = last if span.own else last_own
        if before is not None and before.device == span.device and span.begin < before.end:
            one, other = (span, before) if span.own else (before, span)
            raise TypeError(
                f"{one.name} shares memory with {other.name}, which a resume would separate: keep a clone there"
            )
        if last is None or last.device != span.device or span.end > last.end:
            last = span
        if span.own and (last_own is None or last_own.device != span.device or span.end > last_own.end):
            last_own = span


@dataclass(frozen=True, slots=True)
class _Span:
    """The memory that a tensor's elements lie in."""

    device: str
    begin: int
    end: int
    name: str
    own: bool

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, *, own: bool) -> "_Span":
        begin = tensor.data_ptr()
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return cls(str(tensor.device), begin, begin + (last + 1) * tensor.element_size(), name, own)


def is_expanded(tensor: torch.Tensor) -> bool:
    """Whether several indices of a dimension show the same memory."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def without_expansion(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of the elements that are left of a tensor where another one of its shape is expanded."""
    for dimension, stride in enumerate(like.stride()):
        if stride == 0 and like.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements share memory in another way than along an expanded dimension; may be wrong for odd views."""
    covered = 1
    if not tensor.numel():
        return False
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1 or stride == 0:
            continue
        if stride < covered:
            return True
        covered = (size - 1) * stride + covered
    return False
