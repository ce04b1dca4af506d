"""Puts a training back to where a step began, as far as the program has changed it there; or finds out that it cannot.

What the library itself does in a step is known. A program may do anything: fill a queue, advance a schedule, move
parameters for a while. A rank whose state is not the one between two steps must not give it to others.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from ddpjob_trainer.checkpointing.forms import is_plain
from ddpjob_trainer.checkpointing.snapshot import Stateful
from ddpjob_trainer.checkpointing.tree import from_json, to_json

_WORD: Final = 8
_ROW: Final = 1024
"""Words."""
_SMALL: Final = 2**16
"""Bytes of tensors of a state that is copied in each step in any case."""


class Rewinding:
    """What a training is made of, as it was at the beginning of a step.

    Small states are copied, and so are those that have changed during the first step before its parameters did, or
    after its end. Of all others only marks are taken: sums of their values, and the versions of their tensors.
    """

    def __init__(
        self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], states: Mapping[str, Stateful]
    ) -> None:
        """Args:
        models: whose parameters only optimizers may change; of their buffers others take care.
        optimizers: of these.
        states: everything else, by name.
        """
        self._parameters = [each for model in models for each in model.parameters()]
        self._optimizers = optimizers
        self._states = {name: _State(name, state) for name, state in states.items()}
        self._sums: list[torch.Tensor | None] = []
        self._versions: list[tuple[int, int]] = []
        self._groups: list[list[dict[str, Any]]] = []
        self._learning = True
        self._ended = False

    def remember(self) -> None:
        """A step begins."""
        if self._learning and self._ended:
            self._learn()
            self._learning = False
        for state in self._states.values():
            state.remember()
        self._sums = _sums(self._parameters)
        self._versions = self._seen()
        self._groups = [[_hyperparameters(group) for group in each.param_groups] for each in self._optimizers]

    def change(self) -> None:
        """Parameters are about to change, for the first time in the step."""
        if self._learning:
            self._learn()

    def end(self) -> None:
        """The step is committed; what follows until the next one begins may run once more, if that is lost."""
        if self._learning:
            self._ended = True
            for state in self._states.values():
                state.mark()

    def rewind(self) -> list[str]:
        """Put back what has changed since the step began, before parameters did; returns what cannot be put back."""
        wrong = [name for name, state in self._states.items() if not state.rewind()]
        if self._seen() != self._versions:
            wrong.append("the parameters or the state of an optimizer")
        elif not all(map(_same, _sums(self._parameters), self._sums)):
            wrong.append("the parameters")
        for optimizer, groups in zip(self._optimizers, self._groups, strict=True):
            if len(optimizer.param_groups) != len(groups):
                wrong.append("the groups of an optimizer")
                continue
            for group, before in zip(optimizer.param_groups, groups, strict=True):
                _restore(group, before)
        return wrong

    def _learn(self) -> None:
        for state in self._states.values():
            state.learn()

    def _seen(self) -> list[tuple[int, int]]:
        """Where tensors are, and how often they were changed in place."""
        found = list(self._parameters)
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                found += [each for each in state.values() if isinstance(each, torch.Tensor)]
        return [(each.data_ptr() if is_plain(each) else 0, each._version) for each in found]  # noqa: SLF001 nothing else counts changes


class _State:
    """One state that is kept."""

    def __init__(self, name: str, state: Stateful) -> None:
        self._name = name
        self._state = state
        self._copied = False
        # Whether it could be looked at: it may have become something that no checkpoint holds.
        self._readable = True
        self._mark: tuple[str, list[torch.Tensor | None]] = ("", [])
        self._copy: tuple[Any, dict[str, torch.Tensor]] | None = None

    def remember(self) -> None:
        tree, tensors = self._taken()
        self._mark = _mark(tree, tensors)
        self._copy = None
        if self._copied or sum(each.nbytes for each in tensors.values()) <= _SMALL:
            self._copy = tree, {name: each.detach().clone() for name, each in tensors.items()}

    def mark(self) -> None:
        self._mark = _mark(*self._taken())

    def learn(self) -> None:
        self._copied = self._copied or self._changed

    def rewind(self) -> bool:
        if not self._changed:
            return self._readable
        # It may be lost in this way again.
        self._copied = True
        if self._copy is None:
            return False
        tree, tensors = self._copy
        self._state.load_state_dict(from_json(tree, tensors))
        return not self._changed

    @property
    def _changed(self) -> bool:
        (text, sums), (before, sums_before) = _mark(*self._taken()), self._mark
        return text != before or len(sums) != len(sums_before) or not all(map(_same, sums, sums_before))

    def _taken(self) -> tuple[Any, dict[str, torch.Tensor]]:
        tensors = dict[str, torch.Tensor]()
        try:
            return to_json(self._state.state_dict(), self._name, tensors, _itself), tensors
        except TypeError:
            # The next save says so. Until then the training goes on, and only has no state to give to others.
            self._readable = False
            return None, {}


def _mark(tree: Any, tensors: Mapping[str, torch.Tensor]) -> tuple[str, list[torch.Tensor | None]]:  # noqa: ANN401 anything JSON can hold
    return json.dumps(tree), _sums(list(tensors.values()))


def _sums(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """A number of each tensor that changes with its values and their order; on its device, and not read.

    It costs a fraction of a copy: words are added up by rows and by columns, and only these sums are weighted.
    """
    return [_sum(each) for each in tensors]


def _sum(tensor: torch.Tensor) -> torch.Tensor | None:
    whole = tensor.detach()
    if not is_plain(whole) or not whole.numel():
        return None
    flat = whole.contiguous().view(-1).view(torch.uint8)
    words = len(flat) // _WORD * _WORD
    if (whole.storage_offset() * whole.element_size()) % _WORD:
        flat = flat.clone()
    values = flat[:words].view(torch.int64)
    whole_rows = len(values) // _ROW
    table = values[: whole_rows * _ROW].view(whole_rows, _ROW)
    total = _weighted(table.sum(1)) + _weighted(table.sum(0)) + _weighted(values[whole_rows * _ROW :])
    return total if words == len(flat) else total + _weighted(flat[words:].long())


def _weighted(values: torch.Tensor) -> torch.Tensor:
    # Odd weights, by which no change of a single value is lost when the product overflows.
    return (values * torch.arange(1, 2 * len(values) + 1, 2, device=values.device)).sum()


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other if one is None or other is None else bool(one == other)


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each.detach().clone() if isinstance(each, torch.Tensor) else copy.copy(each)
        for name, each in group.items()
        if name != "params"
    }


def _restore(group: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [name for name in group if name != "params" and name not in before]:
        del group[name]
    for name, value in before.items():
        found = group.get(name)
        if isinstance(found, torch.Tensor) and isinstance(value, torch.Tensor):
            # A compiled optimizer, and a scheduler, know the tensor.
            found.copy_(value)
        else:
            group[name] = value


def _itself(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor
