"""State as JSON and named tensors: stores what `state_dict()` returns without pickle.

Reading a pickle can run arbitrary code, and a checkpoint comes from a volume that others may write to.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from ddpjob_trainer.checkpointing.forms import View, real, refuse, strides_of, view_of

_TENSOR: Final = "$tensor"
_STRIDES: Final = "strides"
"""Of a tensor that is not contiguous in memory; in the file all are."""
_COMPLEX: Final = "complex"
"""Whether the file has a tensor's real and imaginary parts, in a last dimension of 2."""
_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"
_COUNTER: Final = "$counter"
"""Marks the items of a Counter: MultiStepLR keeps its milestones in one, and needs more than a mapping."""


Copy = Callable[[str, torch.Tensor], torch.Tensor]
"""Given a name and a tensor, what is to be written."""

Leaf = tuple[str, Any, Any, Any]
"""A value in a tree: its name, the mapping or sequence that holds it, its key there, and itself."""


def to_json(
    tree: Any,  # noqa: ANN401 any state_dict
    prefix: str,
    tensors: dict[str, torch.Tensor],
    copy: Copy,
    shared: dict[View, str] | None = None,
) -> Any:  # noqa: ANN401 anything JSON can hold
    """The tree with every tensor replaced by the name under which it is added to `tensors`.

    Args:
        tree: nested mappings, lists and tuples of tensors and of what JSON can hold.
        prefix: of the names of its tensors.
        tensors: receives what `copy` returns.
        copy: is given each tensor, a complex one as real numbers.
        shared: names of the tensors so far; one that is the same view of the same memory as another gets its name, and
            is that very tensor again when it is read. None keeps them apart.

    Raises:
        TypeError: it holds anything else, or a tensor that could not be restored; the message names the place.
    """
    if isinstance(tree, torch.Tensor):
        refuse(prefix, tree)
        name = prefix if shared is None or not tree.numel() else shared.setdefault(view_of(tree), prefix)
        if name == prefix:
            if name in tensors:
                raise TypeError(f"{name} is the name of two tensors")
            tensors[name] = copy(name, real(tree))
        strides = strides_of(tree)
        mark = {_TENSOR: name} | ({} if strides is None else {_STRIDES: strides})
        return mark | ({_COMPLEX: True} if tree.is_complex() else {})
    if isinstance(tree, np.generic):
        # Such as a number given to a scheduler that came from an array.
        tree = tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Mapping):
        # As pairs: the keys of an optimizer's state are numbers, which JSON would turn into strings.
        items = [
            [_key(key, prefix), to_json(value, f"{prefix}.{key}", tensors, copy, shared)] for key, value in tree.items()
        ]
        return {_ITEMS: items, _COUNTER: True} if isinstance(tree, Counter) else {_ITEMS: items}
    if isinstance(tree, list | tuple):
        items = [to_json(item, f"{prefix}.{index}", tensors, copy, shared) for index, item in enumerate(tree)]
        return {_TUPLE: items} if isinstance(tree, tuple) else items
    raise TypeError(f"{prefix} is a {type(tree).__name__}, which a checkpoint without pickle cannot hold")


def from_json(json: Any, tensors: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401 any state_dict
    """The tree that `to_json` converted.

    Args:
        json: what it returned.
        tensors: by name, each in the form that `empty` gives it.

    Raises:
        KeyError: a tensor is missing.
    """
    if isinstance(json, list):
        return [from_json(item, tensors) for item in json]
    if not isinstance(json, dict):
        return json
    if _TENSOR in json:
        return tensors[json[_TENSOR]]
    if _TUPLE in json:
        return tuple(from_json(item, tensors) for item in json[_TUPLE])
    items = {key: from_json(value, tensors) for key, value in json[_ITEMS]}
    return Counter(items) if json.get(_COUNTER) else items


def items_of(json: Any, key: str) -> list[Any]:  # noqa: ANN401 what `to_json` returned
    """Keys and values of a mapping in a mapping."""
    found: list[Any] = dict(json[_ITEMS])[key][_ITEMS]
    return found


def with_items(json: Any, key: str, change: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: ANN401 likewise
    """The tree with other keys and values in a mapping of it, if it has that."""
    if not isinstance(json, dict) or _ITEMS not in json:
        return json
    items = [[each, {**value, _ITEMS: change(value[_ITEMS])} if each == key else value] for each, value in json[_ITEMS]]
    return {**json, _ITEMS: items}


def marks(json: Any) -> Iterator["Mark"]:  # noqa: ANN401 what `to_json` returned
    """What the tree says of its tensors."""
    if isinstance(json, list):
        for item in json:
            yield from marks(item)
    elif isinstance(json, dict):
        if _TENSOR in json:
            yield Mark(json[_TENSOR], json.get(_STRIDES), bool(json.get(_COMPLEX)))
        elif _TUPLE in json:
            yield from marks(json[_TUPLE])
        else:
            for _, value in json[_ITEMS]:
                yield from marks(value)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a tree has in the place of a tensor."""

    name: str
    strides: list[int] | None
    complex: bool

    def shape(self, in_file: Sequence[int]) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(in_file[:-1] if self.complex else in_file)

    def dtype(self, in_file: torch.dtype) -> torch.dtype:
        """The type of the tensor."""
        return in_file.to_complex() if self.complex else in_file

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Memory for the tensor, of the layout that it had.

        Raises:
            ValueError: no tensor of this shape can have its strides.
        """
        if self.strides is None:
            return torch.empty(tuple(shape), dtype=dtype)
        if len(self.strides) != len(shape) or not all(type(each) is int and each >= 0 for each in self.strides):
            raise ValueError(f"{self.name} has the strides {self.strides} and the shape {list(shape)}")
        last = sum(max(size - 1, 0) * stride for size, stride in zip(shape, self.strides, strict=True))
        if last >= max(math.prod(shape), 1):
            # They were without gaps: whatever a file says, no more memory is taken than it has bytes.
            raise ValueError(f"{self.name} has the strides {self.strides} and the shape {list(shape)}")
        return torch.empty_strided(tuple(shape), self.strides, dtype=dtype)


def leaves(tree: Any, prefix: str, holder: Any = None, key: Any = None) -> Iterator[Leaf]:  # noqa: ANN401 any state_dict
    """All values of a tree that hold no others, by the names that `to_json` gives their tensors."""
    if isinstance(tree, Mapping):
        for each, value in tree.items():
            yield from leaves(value, f"{prefix}.{each}", tree, each)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{prefix}.{index}", tree, index)
    else:
        yield prefix, holder, key, tree


def _key(key: object, prefix: str) -> str | int:
    if isinstance(key, np.integer):
        return int(key)
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{prefix} has the key {key!r}: only strings and integers can be saved")
