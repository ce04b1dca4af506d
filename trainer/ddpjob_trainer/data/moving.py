"""Moves a batch to a device, whatever it is made of."""

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch


def to_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 whatever the data set holds
    """A batch of the same type with all its tensors on a device, including those in what it holds.

    What has a method `to`, such as a PackedSequence or a tokenizer's BatchEncoding, is moved by it. Mappings,
    dataclasses, named tuples, lists and tuples are rebuilt; anything else stays as it is.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    # What nearly all batches are, without looking further: this is done in every step.
    if type(batch) in (list, tuple):
        return type(batch)([to_device(value, device) for value in batch])
    # A class has the method too, but not for itself.
    if callable(getattr(batch, "to", None)) and not isinstance(batch, type):
        return batch.to(device)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return _of_dataclass(batch, device)
    if isinstance(batch, Mapping):
        return _of_mapping(batch, device)
    return _of_sequence(batch, device) if isinstance(batch, list | tuple) else batch


def _of_sequence(batch: list[Any] | tuple[Any, ...], device: torch.device) -> Any:  # noqa: ANN401 of the same type
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list):
        # Its class may have other arguments, or further attributes.
        moved = copy.copy(batch)
        moved[:] = [to_device(value, device) for value in batch]
        return moved
    return type(batch)(to_device(value, device) for value in batch)


def _of_dataclass(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 any dataclass
    # Not dataclasses.replace: a field may not be an argument, and __post_init__ has run.
    moved = copy.copy(batch)
    for field in dataclasses.fields(batch):
        if hasattr(batch, field.name):
            # A frozen one allows it only so.
            object.__setattr__(moved, field.name, to_device(getattr(batch, field.name), device))
    return moved


def _of_mapping(batch: Mapping[Any, Any], device: torch.device) -> Mapping[Any, Any]:
    values = {key: to_device(value, device) for key, value in batch.items()}
    if not isinstance(batch, MutableMapping):
        return values
    # A copy keeps what the class has besides, such as the default of a defaultdict.
    moved = copy.copy(batch)
    for key, value in values.items():
        moved[key] = value
    return moved
