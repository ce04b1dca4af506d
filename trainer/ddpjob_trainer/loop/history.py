"""What a training remembers of its evaluations."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ddpjob_trainer.checkpointing.best import HISTORY
from ddpjob_trainer.loop.early_stopping import EarlyStop, EarlyStopping, Mode

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """One evaluation."""

    step: int
    """Optimizer steps before it."""
    metrics: Mapping[str, float]
    """What it has found, by name."""
    value: float | None
    """What counts; None: nothing does."""


class History:
    """The last evaluation and the best one, and how many were no improvement; kept in checkpoints."""

    def __init__(self, how: EarlyStopping | None, mode: Mode | None, metric: str | None) -> None:
        """Args:
        how: to end the training early; None never does.
        mode: which of two is better; None: of a number without a name the larger one, and of others none is.
        metric: name of the number that counts, if it is given.
        """
        self._how = how
        self._mode = mode
        self._metric = metric
        self.early_stop = None if how is None else EarlyStop(how)
        self.last: Measured | None = None
        self.best: Measured | None = None
        """The best one; unlike for early stopping, any gain counts."""

    @property
    def last_step(self) -> int | None:
        """Optimizer steps before the last evaluation, None before the first."""
        return None if self.last is None else self.last.step

    def add(self, step: int, metrics: Mapping[str, float], metric: str | None) -> bool:
        """Count an evaluation, and return whether it is the best one so far.

        Args:
            step: optimizer steps before it.
            metrics: what it has found.
            metric: name of the one that counts; None: none does.
        """
        if metric is not None and self._metric is not None and metric != self._metric:
            self._forget(f"{metric} counts instead of {self._metric}")
        self._metric = metric or self._metric
        self.last = Measured(step, dict(metrics), None if metric is None else metrics[metric])
        if self.last.value is None:
            return False
        if self.early_stop is not None:
            self.early_stop.add(self.last.value, step)
        any_gain = EarlyStopping(patience=1, mode=self._mode or Mode.MAX)
        if not any_gain.better(self.last.value, None if self.best is None else self.best.value):
            return False
        self.best = self.last
        return True

    def state_dict(self) -> dict[str, Any]:
        """What is remembered."""
        count = (self.early_stop or EarlyStop(EarlyStopping(patience=1))).state_dict()
        last, best = (None if each is None else asdict(each) for each in (self.last, self.best))
        return {**count, HISTORY: {"metric": self._metric, "mode": self._mode, "last": last, "best": best}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what was remembered; with another metric, the count begins again."""
        count = dict(state_dict)
        # Older versions have the count alone.
        found = count.pop(HISTORY, None)
        if self.early_stop is not None:
            self.early_stop.load_state_dict(count)
        if found is None:
            value, _, step = count.values()
            self.best = None if step is None else Measured(step, {}, value)
            return
        self.last, self.best = (None if each is None else Measured(**each) for each in (found["last"], found["best"]))
        metric, mode = found["metric"], found["mode"]
        if self._metric is not None and metric is not None and metric != self._metric:
            self._forget(f"{self._metric} counts instead of {metric}")
        elif self._mode is not None and mode is not None and mode != self._mode:
            self._forget(f"the {self._mode} counts instead of the {mode}")
        else:
            self._metric = self._metric or metric

    def _forget(self, why: str) -> None:
        _log.warning("earlier evaluations do not count: %s", why)
        self.early_stop = None if self._how is None else EarlyStop(self._how)
        self.best = None
