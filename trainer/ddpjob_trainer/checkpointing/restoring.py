"""Puts a checkpoint into a training, tensor by tensor: each is read right into the memory where it stays.

The model keeps its layout (channels_last and others), which is the program's choice and changes no value. The state of
an optimizer follows the layout of its parameter, as it does when the optimizer makes it: fused optimizers go through
both by address, and silently compute something else where their layouts differ.
"""

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.optim.lr_scheduler import LambdaLR

from ddpjob_trainer.checkpointing.forms import View, is_expanded, is_plain, real, view_of, without_expansion
from ddpjob_trainer.checkpointing.shards import own_state
from ddpjob_trainer.checkpointing.snapshot import (
    MODEL,
    OPTIMIZER,
    STRIDES,
    VERSIONS,
    Stateful,
    TrainingState,
    parameters_of,
    state_of,
    uncompiled,
    uncompiled_names,
)
from ddpjob_trainer.checkpointing.tree import Leaf, Mark, from_json, leaves, marks

Name = tuple[str, str]
"""Of a tensor: its file and its name there."""

OTHERS: Final = "others"

Form = tuple[torch.dtype, tuple[int, ...]]
"""Type and shape of a tensor in a file."""

_REST: Final = (
    ("scheduler", "scheduler"),
    ("scaler", "scaler"),
    ("early_stopping", "earlyStop"),
    ("session", OTHERS),
    ("buckets", "buckets"),
    ("weights", "weights"),
    ("global batch", "globalBatch"),
)
"""What else a checkpoint may hold, in words and in the manifest."""


class MisfitError(ValueError):
    """The checkpoint belongs to another model or optimizer."""

    @classmethod
    def of(cls, what: str, reason: object) -> "MisfitError":
        """Args:
        what: does not match.
        reason: why.
        """
        return cls(
            f"the checkpoint does not match this {what}: use another checkpoint folder, or the program that saved "
            f"it ({reason})"
        )


class Restoring:
    """One checkpoint on its way into a training."""

    def __init__(self, state: TrainingState, manifest: Mapping[str, Any], forms: Mapping[Name, Form]) -> None:
        """Args:
        state: of the training.
        manifest: of the checkpoint.
        forms: of the tensors in its files.

        Raises:
            MisfitError: the checkpoint belongs to another model.
        """
        self._state = state
        self._manifest = manifest
        self._forms = forms
        self._targets: dict[Name, torch.Tensor] = {}
        what = MODEL
        try:
            self._own = state_of(state.model, MODEL)
            self._names = uncompiled_names(self._own)
            for name, value in manifest[MODEL].items():
                own = self._own.get(self._names.get(uncompiled(name), ""))
                for mark in marks(value):
                    self._targets[MODEL, mark.name] = self._of_model(mark, own)
            what = OPTIMIZER
            self._optimizer = own_state(manifest[OPTIMIZER], state)
            self._prepare_optimizer()
            for what, key in _REST:  # noqa: B007 the message names it
                # Averages of the parameters may be as large as the model.
                json, others = manifest.get(key), state.others if key == OTHERS else None
                own = {} if others is None else self._present(others, key, json)
                for mark in marks(json):
                    self._targets[OPTIMIZER, mark.name] = own[mark.name] if mark.name in own else self._new(mark)
        except (RuntimeError, ValueError, KeyError, TypeError) as reason:
            raise MisfitError.of(what, reason) from reason

    def target(self, name: Name) -> torch.Tensor | None:
        """Where to put the values of a tensor, in the form that it has in its file; None if nothing needs it."""
        found = self._targets.get(name)
        return None if found is None else real(found)

    def finish(self) -> None:
        """Restore everything, now that the targets have their values.

        Raises:
            MisfitError: the checkpoint belongs to another model or optimizer.
        """
        optimizer = {name: tensor for (file, name), tensor in self._targets.items() if file == OPTIMIZER}
        what = MODEL
        try:
            self._finish_model()
            what = OPTIMIZER
            load_optimizer(self._state.optimizer, from_json(self._optimizer, optimizer))
            # Checkpoints of older versions do not have all of them.
            rest = self._state
            parts = (rest.scheduler, rest.scaler, rest.early_stop, rest.others, rest.buckets, rest.weights, rest.batch)
            for (what, key), part in zip(_REST, parts, strict=True):  # noqa: B007 the message names it
                if part is not None and self._manifest.get(key):
                    part.load_state_dict(from_json(self._manifest[key], optimizer))
        except (RuntimeError, ValueError, KeyError, TypeError) as reason:
            raise MisfitError.of(what, reason) from reason
        if isinstance(self._state.scheduler, LambdaLR):
            _compute_rates(self._state.scheduler)

    def _of_model(self, mark: Mark, own: object) -> torch.Tensor:
        dtype, shape = self._form(MODEL, mark)
        if not isinstance(own, torch.Tensor) or not is_plain(own) or own.shape != shape:
            # The model itself says what is wrong, or can take it all the same.
            return self._new(mark, MODEL)
        if own.dtype != dtype:
            raise ValueError(f"{mark.name} is {_words(own.dtype)} here and {_words(dtype)} in the checkpoint")
        return self._new(mark, MODEL) if is_expanded(own) or own.is_conj() or own.is_neg() else own.detach()

    def _finish_model(self) -> None:
        tensors = {name: tensor for (file, name), tensor in self._targets.items() if file == MODEL}
        found = OrderedDict[str, Any]()
        for name, json in self._manifest[MODEL].items():
            key = self._names.get(uncompiled(name), name)
            value, own = from_json(json, tensors), self._own.get(key)
            if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor) and _shows_each_often(own, value):
                # torch itself writes to no memory that has several indices.
                without_expansion(own.detach(), own).copy_(without_expansion(value, own))
                value = own
            found[key] = value
        metadata, versions = getattr(self._own, "_metadata", None), self._manifest.get(VERSIONS)
        if metadata is not None and versions is not None:
            # Without the versions torch's modules take the state for that of the oldest one, and may convert it.
            found._metadata = OrderedDict(  # type: ignore[attr-defined]  # noqa: SLF001 as torch does
                (name, {**each, "version": versions.get(uncompiled(name), 1)}) for name, each in metadata.items()
            )
        self._state.model.load_state_dict(found)

    def _prepare_optimizer(self) -> None:
        parameters, strides = parameters_of(self._state.optimizer), self._manifest.get(STRIDES, {})
        own = self._present(self._state.optimizer, OPTIMIZER, self._optimizer)
        for mark in marks(self._optimizer):
            name = (OPTIMIZER, mark.name)
            if name in self._targets:
                continue
            dtype, shape = self._form(OPTIMIZER, mark)
            index = _parameter_of(mark.name)
            parameter = None if index is None else parameters.get(index)
            if mark.name in own:
                self._targets[name] = own[mark.name]
                continue
            were = strides.get(str(index)), mark.strides
            if parameter is not None and is_plain(parameter) and parameter.shape == shape and were[0] == were[1]:
                # On its device as well, where load_state_dict would otherwise make another copy.
                self._targets[name] = torch.empty_like(parameter.detach(), dtype=dtype)
            else:
                self._targets[name] = self._new(mark)

    def _present(self, part: Stateful, name: str, json: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 of the manifest
        """Tensors that a part of the training has already, each of which can be read into where it is."""
        found, taken = dict[str, torch.Tensor](), set[View]()
        own = {each: tensor for each, _, _, tensor in leaves(state_of(part, name), name)}
        for mark in marks(json):
            there = own.get(mark.name)
            if not isinstance(there, torch.Tensor) or not is_plain(there) or is_expanded(there):
                continue
            # Memory that has several names now had one each when it was saved, unless the manifest has one for all.
            if (there.dtype, there.shape) == self._form(OPTIMIZER, mark) and view_of(there) not in taken:
                taken.add(view_of(there))
                found[mark.name] = there.detach()
        return found

    def _form(self, file: str, mark: Mark) -> Form:
        dtype, shape = self._forms[file, mark.name]
        return mark.dtype(dtype), mark.shape(shape)

    def _new(self, mark: Mark, file: str = OPTIMIZER) -> torch.Tensor:
        dtype, shape = self._form(file, mark)
        return mark.empty(shape, dtype)


def load_optimizer(optimizer: Stateful, tree: Mapping[str, Any]) -> None:
    """Load an optimizer's state so that it is what was saved.

    torch's optimizers give the state of a parameter its type, whatever type it had, and turn texts into others.

    Raises:
        TypeError: the optimizer does not take a tensor as it is; the message names it.
    """
    expected = {name: value for name, _, _, value in leaves(tree, OPTIMIZER)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Casting complex values to real")
        optimizer.load_state_dict(dict(tree))
    for name, holder, key, found in _changed(optimizer, expected):
        value = expected[name]
        if isinstance(holder, dict | list):
            holder[key] = value.to(found.device) if isinstance(value, torch.Tensor) else value
    for name, _, _, found in _changed(optimizer, expected):
        what = _words(found.dtype) if isinstance(found, torch.Tensor) else repr(found)
        raise TypeError(f"the optimizer turns {name} into {what}: its load_state_dict must keep it as it is")


def _changed(optimizer: Stateful, expected: Mapping[str, Any]) -> list[Leaf]:
    """What an optimizer has in its state that differs from what it was given."""
    wrong = list[Leaf]()
    for leaf in leaves(state_of(optimizer, OPTIMIZER), OPTIMIZER):
        name, _, key, found = leaf
        value = expected.get(name)
        # How often it has made a step is for the optimizer: fused ones need it in their own form.
        if value is None or key == "step" or _parameter_of(name) is None:
            continue
        if isinstance(value, torch.Tensor) and isinstance(found, torch.Tensor):
            if (value.dtype, value.shape, value.stride()) != (found.dtype, found.shape, found.stride()):
                wrong.append(leaf)
        elif isinstance(value, str) and value != found:
            wrong.append(leaf)
    return wrong


def _parameter_of(name: str) -> int | None:
    """The number of the parameter to which a tensor of an optimizer's state belongs."""
    parts = name.split(".")
    return int(parts[2]) if parts[1:2] == ["state"] and parts[2:] and parts[2].isdecimal() else None


def _shows_each_often(own: torch.Tensor, value: torch.Tensor) -> bool:
    return own is not value and own.shape == value.shape and is_plain(own) and is_expanded(own)


def _words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _compute_rates(scheduler: LambdaLR) -> None:
    """Set the learning rates that the functions return now: a checkpoint has those returned when it was saved.

    Nothing changes if they are the same. With more epochs than before, a cosine that may have reached 0 rises again
    immediately, and not only after the next epoch.
    """
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        rates = scheduler.get_lr()
    # A group added to the optimizer later has no function.
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=False):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]  # noqa: SLF001 as its step does
