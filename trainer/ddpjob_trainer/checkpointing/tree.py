"""State as JSON and named tensors: stores what `state_dict()` returns without pickle.

Reading a pickle can run arbitrary code, and a checkpoint comes from a volume that others may write to.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

_TENSOR: Final = "$tensor"
_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"
_COUNTER: Final = "$counter"
"""Marks the items of a Counter: MultiStepLR keeps its milestones in one, and needs more than a mapping."""


Copy = Callable[[str, torch.Tensor], torch.Tensor]
"""Given a name and a tensor, makes a contiguous copy in the host's memory."""


def to_json(tree: Any, prefix: str, tensors: dict[str, torch.Tensor], copy: Copy) -> Any:  # noqa: ANN401 any state_dict
    """The tree with every tensor replaced by the name under which it is added to `tensors`.

    Args:
        tree: nested mappings, lists and tuples of tensors and of what JSON can hold.
        prefix: of the names of its tensors.
        tensors: receives copies of the tensors.
        copy: makes a copy.

    Raises:
        TypeError: it holds anything else; the message names the place.
    """
    if isinstance(tree, torch.Tensor):
        # A copy, since the next step changes the tensor, and since tied weights share memory, which files cannot.
        tensors[prefix] = copy(prefix, tree)
        return {_TENSOR: prefix}
    if isinstance(tree, np.generic):
        # Such as a number given to a scheduler that came from an array.
        tree = tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Mapping):
        # As pairs: the keys of an optimizer's state are numbers, which JSON would turn into strings.
        items = [[_key(key, prefix), to_json(value, f"{prefix}.{key}", tensors, copy)] for key, value in tree.items()]
        return {_ITEMS: items, _COUNTER: True} if isinstance(tree, Counter) else {_ITEMS: items}
    if isinstance(tree, list | tuple):
        items = [to_json(item, f"{prefix}.{index}", tensors, copy) for index, item in enumerate(tree)]
        return {_TUPLE: items} if isinstance(tree, tuple) else items
    raise TypeError(f"{prefix} is a {type(tree).__name__}, which a checkpoint without pickle cannot hold")


def from_json(json: Any, tensors: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401 any state_dict
    """The tree that `to_json` converted.

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


def _key(key: object, prefix: str) -> str | int:
    if isinstance(key, np.integer):
        return int(key)
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{prefix} has the key {key!r}: only strings and integers can be saved")
