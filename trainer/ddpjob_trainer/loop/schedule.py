"""A learning rate scheduler that is a function of the number of steps, which a training knows when it begins."""

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ddpjob_trainer.checkpointing.restoring import MisfitError
from ddpjob_trainer.process.environment import MisuseError

MakeScheduler = Callable[[Optimizer, int], LRScheduler]
"""Given the optimizer and the number of steps of the whole training, its scheduler, such as `OneCycleLR`."""

_TOTAL: Final = "ddpjob_total_steps"
_DONE: Final = "ddpjob_steps"
_RATES: Final = ("lr", "initial_lr")

_log = logging.getLogger(__name__)


class Advanced(Protocol):
    """What is advanced after a step."""

    def step(self) -> object:
        """A step is done."""


def is_function(scheduler: object) -> bool:
    """Whether a scheduler is given as a function that makes it; its class is one too."""
    return isinstance(scheduler, type) or (callable(scheduler) and not hasattr(scheduler, "step"))


class Schedule:
    """A scheduler that is made for a number of steps, and made again if a resume changes that number.

    It is then where it would be had it been made for that number in the first place.
    """

    def __init__(self, make: MakeScheduler, optimizer: Optimizer, total_steps: int) -> None:
        """Args:
        make: given the optimizer and the number of steps.
        optimizer: with no step made.
        total_steps: of a training from the beginning.

        Raises:
            MisuseError: what is made is not a scheduler, or does not depend on the number of steps.
        """
        self._make = make
        self._optimizer = optimizer
        self._total = total_steps
        self._before = _options(optimizer)
        self._done = 0
        self._saved: dict[str, Any] | None = None
        self._scheduler = self._made()

    def step(self) -> None:
        """Advance it: a step is done."""
        self._scheduler.step()
        self._done += 1

    def state_dict(self) -> dict[str, Any]:
        """Its state, with the number of steps that it is made for."""
        return {**self._scheduler.state_dict(), _TOTAL: self._total, _DONE: self._done}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state when the training `begin`s; also that of a scheduler that was not a function."""
        self._saved = dict(state_dict)

    def begin(self, total_steps: int, done: int) -> None:
        """The training begins or continues, and the optimizer's state is what it was.

        Args:
            total_steps: of the whole training.
            done: steps of it.

        Raises:
            MisfitError: the saved state is that of another scheduler.
        """
        saved, self._saved = self._saved, None
        if saved is None and done == 0 and total_steps == self._total:
            return
        loaded, self._done, before = _options(self._optimizer), done, None
        if saved is not None:
            self._done = int(saved.pop(_DONE, saved.get("last_epoch", done)))
            before = saved.pop(_TOTAL, total_steps)
        self._total = total_steps
        _set(self._optimizer, self._before)
        self._scheduler = self._made()
        if saved is not None and before == total_steps:
            try:
                self._scheduler.load_state_dict(saved)
            except (RuntimeError, ValueError, KeyError, TypeError) as reason:
                raise MisfitError.of("scheduler", reason) from reason
            _set(self._optimizer, loaded)
            return
        if before is not None:
            _log.info("the schedule is now that of %d steps instead of %d", total_steps, before)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            for _ in range(self._done):
                self._scheduler.step()
        _set(self._optimizer, _merged(self._before, _options(self._optimizer), loaded))

    def _made(self) -> LRScheduler:
        made = self._make(self._optimizer, self._total)
        if isinstance(made, ReduceLROnPlateau):
            raise MisuseError(
                "ReduceLROnPlateau depends on evaluations and not on the number of steps: pass it itself as scheduler"
            )
        if not hasattr(made, "step") or not hasattr(made, "state_dict"):
            raise MisuseError(
                f"scheduler is a function that returned {type(made).__name__}: it is given the optimizer and the "
                "number of steps, and returns a scheduler of torch.optim.lr_scheduler"
            )
        return made


def _options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Copies of what the parameter groups have besides their parameters."""
    return [
        {
            name: value.detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def _set(optimizer: Optimizer, options: list[dict[str, Any]]) -> None:
    # A group added to the optimizer later has none.
    for group, values in zip(optimizer.param_groups, options, strict=False):
        for name in group.keys() - values.keys() - {"params"}:
            del group[name]
        for name, value in values.items():
            own = group.get(name)
            if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
                # Compiled and captured steps read it where it is.
                own.fill_(value)
            else:
                group[name] = value.clone() if isinstance(value, torch.Tensor) else value


def _merged(
    before: list[dict[str, Any]], scheduled: list[dict[str, Any]], loaded: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What the scheduler has set, and of everything else what was loaded."""
    return [
        {
            **last,
            **{name: value for name, value in new.items() if name in _RATES or name not in old or old[name] != value},
        }
        for old, new, last in zip(before, scheduled, loaded, strict=False)
    ]
