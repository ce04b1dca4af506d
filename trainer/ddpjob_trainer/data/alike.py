"""Whether all ranks have the same data set, as far as that can be seen without reading it.

Each rank reads its own part of what must be the same on all of them. A split or an order that each rank has drawn for
itself shows in nothing else: some samples are read twice and others never, and those that a rank evaluates with are
among those that another one trains with.
"""

import hashlib
import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group

_LOOKS: Final = 8
"""Samples that are compared, and numbers of each."""
_TOLERANCE: Final = 1e-3
"""Relative: what each rank has computed for itself may differ in its last digits."""
_DEPTH: Final = 8


def check_alike(dataset: object, group: Group) -> None:
    """Compare torch's own data sets, and lists, of all ranks; a collective. Of others nothing is known.

    Raises:
        MisuseError: they differ; on all ranks.
    """
    if group.world_size == 1:
        return
    every = [json.loads(each) for each in group.exchange.gather_bytes(json.dumps(_seen(dataset, _DEPTH)).encode())]
    other = next((rank for rank, each in enumerate(every) if not _same(every[0], each)), None)
    if other is not None:
        raise MisuseError(
            f"the data set of rank {other} has other samples than that of rank 0, or in another order: each rank reads "
            "its own part of what must be the same on all of them, so that some samples would be read twice and others "
            "never. Seed what splits or shuffles the data: random_split(..., "
            "generator=torch.Generator().manual_seed(0)), train_test_split(..., random_state=0); and do not share it "
            "between the ranks yourself"
        )


def _seen(data: object, depth: int) -> Any:  # noqa: ANN401 as JSON
    """What can be seen of a data set: texts, which must be the same, and numbers, which may be rounded."""
    # By the exact type: of a subclass's samples nothing is known.
    kind = type(data)
    if depth == 0:
        return None
    if isinstance(data, Subset) and kind is Subset:
        return [_digest(data.indices), _seen(data.dataset, depth - 1)]
    if isinstance(data, ConcatDataset) and kind is ConcatDataset:
        return [_seen(each, depth - 1) for each in data.datasets]
    if isinstance(data, TensorDataset) and kind is TensorDataset:
        return [[_sample(each[index], depth) for index in _some(len(each))] for each in data.tensors]
    return _sample(data, depth) if isinstance(data, list | tuple) else None


def _sample(data: object, depth: int) -> Any:  # noqa: ANN401 as above
    found: Any = None
    if depth > 0:
        match data:
            case torch.Tensor():
                found = list(_numbers(data))
            case list() | tuple():
                found = [_sample(data[index], depth - 1) for index in _some(len(data))]
            case Mapping():
                found = [[str(key), _sample(value, depth - 1)] for key, value in islice(data.items(), _LOOKS)]
            case str():
                found = _text(data.encode(errors="replace"))
            case bool() | int() | float():
                found = data
    return found


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 as above
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        both = math.isnan(one) and math.isnan(other)
        return both or math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(one == other)


def _some(count: int) -> Sequence[int]:
    """Some of this number of samples, from the first on."""
    return range(0, count, max(-(-count // _LOOKS), 1))


def _numbers(tensor: torch.Tensor) -> Iterator[float | int]:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex() or tensor.is_meta:
        return
    flat = tensor.detach().reshape(-1)
    yield from (flat[index].item() for index in _some(len(flat)))


def _digest(indices: Sequence[int]) -> str | None:
    try:
        return _text(array("q", indices).tobytes())
    except (TypeError, OverflowError):
        return None


def _text(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
