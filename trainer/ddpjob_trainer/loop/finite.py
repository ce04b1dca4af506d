"""Finds a loss, gradient or state that is not finite before it can destroy a checkpoint; all ranks find the same.

A NaN in one rank's gradient reaches all ranks with the exchange, then every parameter, and then every later loss.
Losses are kept as they are and only looked at on log steps and before saves: to read one of a GPU would mean to wait.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import torch
from torch import nn

from ddpjob_trainer.process.exchange import Exchange

MOST_LEFT_OUT: Final = 10
"""Steps in a row that `OnNan.SKIP` leaves out: with the next one it is not a batch that is wrong."""
_MOST_UNSEEN: Final = 1000
"""Steps whose losses are kept; with fewer log steps and saves the losses are looked at in between."""
_MOST_NAMES: Final = 3
_MOST_RANKS: Final = 8
_CHECKED: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)

_log = logging.getLogger(__name__)


class OnNan(StrEnum):
    """What to do about a loss or gradient that is NaN or infinite."""

    STOP = "stop"
    """End the training with an error that names step and rank."""
    SKIP = "skip"
    """Leave out steps whose gradients are not finite; each step waits for the device to find out."""
    WARN = "warn"
    """Only log it, and save no state that is not finite."""


class NonFiniteError(RuntimeError):
    """A loss, a gradient or the state of the training is not finite; on all ranks, with the same message."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The first value of a rank that is not finite."""

    what: str
    value: str
    step: int


class Finite:
    """What a training has computed since the last check, and what to do if it is not finite.

    All ranks call `check`, `allows_save` and `leaves_out` together.
    """

    def __init__(
        self,
        exchange: Exchange,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        policy: OnNan,
        rank: int,
        scaled: bool = False,
        found: Callable[[int, str], None] = lambda _step, _message: None,
        main: "Finite | None" = None,
    ) -> None:
        """Args:
        exchange: between the ranks.
        module: the model.
        optimizer: of its parameters.
        policy: what to do.
        rank: of this process; rank 0 logs.
        scaled: whether the loss is scaled: then gradients overflow now and then, and their steps are left out anyway.
        found: called with the step and a message, on all ranks.
        main: of a training with several optimizers, what is asked on log steps and before saves: it gets the losses.
        """
        self._exchange = exchange
        self._module = module
        self._optimizer = optimizer
        self._policy = policy
        self._rank = rank
        self._scaled = scaled
        self._report = found
        self._main = self if main is None else main
        self._step = 0
        self._unseen: list[tuple[int, Sequence[torch.Tensor]]] = []
        self._own: _Found | None = None
        self._warned = False
        self._left_out = 0
        # A model may have such values by design, as in a mask.
        self._always = frozenset[str]()
        self._buffers: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def begin(self, step: int) -> None:
        """The training begins after this step; what is not finite in its state is so by design."""
        self._step = step
        self._always = frozenset(self._state_not_finite())
        spoilt = sorted(self._always.difference(name for name, _ in self._module.named_buffers()))
        if spoilt and self._rank == 0:
            _log.warning("not finite from the beginning: %s", _some(spoilt))
        if self.decides_each_step:
            buffers = [each for each in self._module.buffers() if each.dtype in _CHECKED]
            self._buffers = [(each, each.detach().clone(), each._version) for each in buffers]  # noqa: SLF001 torch counts changes nowhere else

    def at(self, step: int) -> None:
        """The training is at this step; for a loop whose losses are not known here, or come several times per step."""
        self._step = step

    @property
    def decides_each_step(self) -> bool:
        """Whether `leaves_out` must be asked before each step."""
        return self._policy is OnNan.SKIP and not self._scaled

    def leaves_out(self, norm: torch.Tensor, losses: Sequence[torch.Tensor]) -> bool:
        """Whether the step is left out; the model's buffers are then as they were before it.

        Args:
            norm: of the exchanged gradients, which all ranks have.
            losses: of this rank in the step.

        Raises:
            NonFiniteError: too many were left out in a row.
        """
        if torch.isfinite(norm):
            self._left_out = 0
            # BatchNorm has changed them in the forward pass.
            for index, (buffer, copy, version) in enumerate(self._buffers):
                if buffer._version != version:  # noqa: SLF001
                    copy.copy_(buffer)
                    self._buffers[index] = (buffer, copy, buffer._version)  # noqa: SLF001
            return False
        with torch.no_grad():
            for buffer, copy, _ in self._buffers:
                buffer.copy_(copy)
        self._left_out += 1
        step = self._step + 1
        own = _first_loss([(step, losses)]) or _Found("the norm of the gradients", _text(float(norm)), step)
        message = _describe(self._gather(own))
        self._report(step, message)
        if self._left_out > MOST_LEFT_OUT:
            raise NonFiniteError(f"{message}; {MOST_LEFT_OUT} steps before it were left out: it is not one batch")
        if self._rank == 0:
            _log.warning("step %d is left out: %s", step, message)
        return True

    def add(self, losses: Sequence[torch.Tensor], *, left_out: bool) -> None:
        """Remember the losses of a step that is done, which are parts of a sum."""
        self._step += 1
        # What a step that is left out was is already known.
        self._main._unseen.append((self._step, () if left_out else losses))  # noqa: SLF001 one of the same kind
        if len(self._main._unseen) >= _MOST_UNSEEN:  # noqa: SLF001
            self._main._look()  # noqa: SLF001

    def suspicious(self, norm: torch.Tensor) -> torch.Tensor | float:
        """On a log step, how many values of this rank are not finite since the last check, without reading a GPU's."""
        values = [each for _, losses in self._unseen for each in losses]
        if not self._scaled and self._left_out == 0:
            values.append(norm.detach())
        if self._own is not None:
            return 1.0
        if not values:
            return 0.0
        together = torch.stack([each.to(norm.device) for each in values])
        if together.device.type == "cpu":
            return float(sum(not math.isfinite(each) for each in together.tolist()))
        return together.isfinite().logical_not().sum().float()

    def check(self, norm: float, *, step: int, suspicious: bool, saved: int | None) -> None:
        """On a log step, after all ranks have added up what is suspicious.

        Args:
            norm: of the gradients on the log step.
            step: the number of the log step.
            suspicious: whether any rank has found anything.
            saved: step of the newest checkpoint, None without one.

        Raises:
            NonFiniteError: by the policy.
        """
        if not suspicious:
            self._unseen.clear()
            self._warned = False
            return
        self._look()
        if self._own is None and not self._scaled and not math.isfinite(norm):
            self._own = _Found("the norm of the gradients", _text(norm), step)
        self._act(saved, fatal=self._policy is OnNan.STOP)

    def allows_save(self, saved: int | None, *, due: bool = True) -> bool:
        """Whether the state may be saved.

        Args:
            saved: step of the newest checkpoint, None without one.
            due: whether it is about to be.

        Returns:
            False if it is not finite; only with `OnNan.WARN`.

        Raises:
            NonFiniteError: by the policy.
        """
        self._look()
        names = [name for name in self._state_not_finite() if name not in self._always]
        if names and self._own is None:
            self._own = _Found(_some(names), "not finite", self._step)
        losses, states = self._exchange.sum(float(self._own is not None), float(len(names)))
        if losses or states:
            self._act(saved, fatal=self._policy is OnNan.STOP or (states > 0 and self._policy is OnNan.SKIP))
        else:
            self._warned = False
        if states and due and self._rank == 0:
            _log.warning("no checkpoint at step %d: the state of the training is not finite", self._step)
        return not states

    def _act(self, saved: int | None, *, fatal: bool) -> None:
        found = self._gather(self._own)
        message = _describe(found)
        self._own = None
        self._report(self._step, message)
        if fatal:
            last = "no checkpoint was saved" if saved is None else f"last finite checkpoint: step {saved}"
            raise NonFiniteError(f"{message}; {last}")
        if self._rank == 0 and not self._warned:
            _log.warning("%s", message)
        self._warned = True

    def _gather(self, own: _Found | None) -> list[_Found | None]:
        data = json.dumps(None if own is None else [own.what, own.value, own.step]).encode()
        every = [json.loads(each) for each in self._exchange.gather_bytes(data)]
        return [None if each is None else _Found(*each) for each in every]

    def _look(self) -> None:
        """Read the losses that nobody has looked at."""
        self._own = self._own or _first_loss(self._unseen)
        self._unseen.clear()

    def _state_not_finite(self) -> list[str]:
        tensors = dict(self._state())
        if not tensors or torch.isfinite(nn.utils.get_total_norm(list(tensors.values()))):
            return []
        # The squares of large numbers may exceed the largest one.
        return [name for name, each in tensors.items() if not torch.isfinite(each).all()]

    def _state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What is saved and may be spoilt, by name: one of a parameter's shape in the optimizer changes like it."""
        names: dict[torch.Tensor, str] = {}
        for name, parameter in self._module.named_parameters():
            names[parameter] = name
            if parameter.dtype in _CHECKED:
                yield name, parameter.detach()
        for name, buffer in self._module.named_buffers():
            if buffer.dtype in _CHECKED and buffer.layout is torch.strided:
                yield name, buffer.detach()
        for parameter, state in self._optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.dtype in _CHECKED:
                    yield f"{key} of {names.get(parameter, 'a parameter')}", value.detach()


def values_of(gradient: torch.Tensor) -> torch.Tensor:
    """The values to take the norm of: an embedding's gradient may be sparse, for which torch has no norm."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _first_loss(steps: Sequence[tuple[int, Sequence[torch.Tensor]]]) -> _Found | None:
    """The first loss that is not finite, of steps in their order."""
    whole = [
        (step, losses[0] if len(losses) == 1 else torch.stack(list(losses)).sum()) for step, losses in steps if losses
    ]
    if not whole:
        return None
    # Read together, so that only the first one waits for the device.
    values: list[float] = torch.stack([loss for _, loss in whole]).tolist()
    for (step, _), value in zip(whole, values, strict=True):
        if not math.isfinite(value):
            return _Found("loss", _text(value), step)
    return None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def _text(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _describe(found: Sequence[_Found | None]) -> str:
    """One line about what the ranks have found first; what is wrong with a loss comes before its consequences."""
    ranks = [(rank, each) for rank, each in enumerate(found) if each is not None]
    first = min((each for _, each in ranks), key=lambda each: (each.step, each.what != "loss"))
    same = [rank for rank, each in ranks if (each.step, each.what) == (first.step, first.what)]
    text = f"{first.what} became {first.value} at step {first.step}"
    if first.what != "loss":
        # Of what has been exchanged, and of the state, all ranks have the same.
        return text
    if len(same) == len(found) > 1:
        return f"{text} on all {len(same)} ranks"
    shown = ", ".join(map(str, same[:_MOST_RANKS])) + (", ..." if len(same) > _MOST_RANKS else "")
    return f"{text} on rank{'s' if len(same) > 1 else ''} {shown}"
