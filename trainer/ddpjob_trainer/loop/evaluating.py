"""Evaluations of a training: what they are agreed to be, and what follows from them."""

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ddpjob_trainer.loop.course import Course
from ddpjob_trainer.loop.early_stopping import EarlyStop, EarlyStopping, Mode
from ddpjob_trainer.process.activity import Activity
from ddpjob_trainer.process.environment import MisuseError
from ddpjob_trainer.process.group import Group
from ddpjob_trainer.process.patience import wait_for_first

Evaluate = Callable[[nn.Module], float]
"""Given the model in evaluation mode, its accuracy from 0 to 1, or with `Mode.MIN` a loss; called on all ranks.

All ranks use the value of rank 0, whatever the others return.
"""

_log = logging.getLogger(__name__)


class Evaluating:
    """Evaluates a model, and counts what it finds for early stopping and for ReduceLROnPlateau."""

    def __init__(
        self,
        group: Group,
        module: nn.Module,
        evaluate: Evaluate | None,
        *,
        early_stopping: EarlyStopping | None,
        scheduler: LRScheduler | None,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Args:
        group: the processes of the training.
        module: the model.
        evaluate: measures it; None never does.
        early_stopping: when evaluations end the training.
        scheduler: of the optimizer; only a ReduceLROnPlateau is advanced here.
        autocast: the precision of the forward pass.

        Raises:
            MisuseError: the others need evaluations without `evaluate`, or disagree on whether a larger one is better.
        """
        if evaluate is None:
            if early_stopping is not None:
                raise MisuseError("early_stopping needs evaluations: pass evaluate=..., or remove early_stopping")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise MisuseError("ReduceLROnPlateau needs evaluations: pass evaluate=...")
        self._measures_loss = _measures_loss(scheduler, early_stopping)
        self._group = group
        self._module = module
        self._evaluate = evaluate
        self._autocast = autocast
        self._plateau = scheduler if isinstance(scheduler, ReduceLROnPlateau) else None
        self.early_stop = None if early_stopping is None else EarlyStop(early_stopping)
        """The count of evaluations, which checkpoints keep."""

    @property
    def possible(self) -> bool:
        """Whether there is anything to evaluate with."""
        return self._evaluate is not None

    @property
    def stop_is_due(self) -> bool:
        """Whether evaluations have ended the training."""
        return self.early_stop is not None and self.early_stop.due

    @property
    def best_step(self) -> int | None:
        """Optimizer steps before the best evaluation; None before the first, and without early stopping."""
        return None if self.early_stop is None else self.early_stop.best_step

    def run(self, course: Course) -> None:
        """Evaluate the model at the course's position, and report what was found.

        Raises:
            TypeError: what it returned on rank 0 is not a number; on all ranks.
        """
        if self._evaluate is not None:
            self._apply(self._evaluated(self._evaluate, course), course)

    def _evaluated(self, evaluate: Evaluate, course: Course) -> float:
        course.begin(Activity.EVALUATION)
        self._module.eval()
        with torch.no_grad(), self._autocast():
            value = evaluate(self._module)
        # It may have measured alone.
        wait_for_first()
        course.begin(Activity.STEP)
        try:
            # The other ranks need not measure anything.
            own, wrong = float(value) if self._group.first else math.nan, False
        except (TypeError, ValueError):
            own, wrong = math.nan, True
        # Ranks that disagreed on the end, or on a learning rate, would wait for each other or train different models.
        agreed, failed = self._group.exchange.first(own, wrong)
        if failed:
            # What the function returned on other ranks is irrelevant.
            found = f", not {type(value).__name__}" if self._group.first else ""
            raise TypeError(f"evaluate must return a number on rank 0{found}")
        return agreed

    def _apply(self, value: float, course: Course) -> None:
        if self.early_stop is not None:
            self.early_stop.add(value, course.position.step)
        no_improvement_for = None if self.early_stop is None else self.early_stop.no_improvement_for
        if not self._measures_loss:
            course.notify(lambda listener: listener.evaluated(value, no_improvement_for))
        if self._plateau is not None:
            self._plateau.step(value)

    def say_early_end(self, course: Course) -> None:
        """Report that evaluations have ended the training at the course's position."""
        if self.early_stop is None:
            return
        epoch, step = course.position.epoch, course.position.step
        best = "" if self.best_step is None else f"; the best was after step {self.best_step}"
        evaluations = self.early_stop.no_improvement_for
        _log.info("early stop after epoch %d: no improvement in %d evaluations%s", epoch, evaluations, best)
        course.total_steps = step
        course.notify(lambda listener: listener.shortened(epoch, step))


def _measures_loss(scheduler: LRScheduler | None, early_stopping: EarlyStopping | None) -> bool:
    """Whether smaller evaluations are better.

    Raises:
        MisuseError: the two disagree.
    """
    modes = {} if early_stopping is None else {f"early_stopping has mode {early_stopping.mode}": early_stopping.mode}
    if isinstance(scheduler, ReduceLROnPlateau):
        modes[f"ReduceLROnPlateau has mode {scheduler.mode}"] = Mode(scheduler.mode)
    if len(set(modes.values())) > 1:
        raise MisuseError(f"{' and '.join(modes)}: both use the same evaluations and must agree on which is better")
    return Mode.MIN in modes.values()
