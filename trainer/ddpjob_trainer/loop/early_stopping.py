"""When to end a training whose evaluations no longer improve."""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ddpjob_trainer.loop.choice import one_of


class Mode(StrEnum):
    """Which of two evaluations is better."""

    MAX = "max"
    """The larger one, for an accuracy."""
    MIN = "min"
    """The smaller one, for a loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopping:
    """After how many evaluations without improvement a training ends."""

    patience: int
    """Evaluations in a row without improvement; the training ends with the last of them."""
    min_delta: float = 0.0
    """An evaluation is an improvement if it is better than the best one so far by more than this."""
    mode: Mode = Mode.MAX

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"EarlyStopping.patience must be at least 1, not {self.patience}")
        if not 0 <= self.min_delta < math.inf:
            raise ValueError(f"EarlyStopping.min_delta must be a finite number of at least 0, not {self.min_delta}")
        object.__setattr__(self, "mode", one_of(Mode, "EarlyStopping.mode", self.mode))

    def better(self, value: float, best: float | None) -> bool:
        """Whether an evaluation is an improvement on the best one so far; NaN never is."""
        if math.isnan(value) or best is None:
            return not math.isnan(value)
        gain = value - best if self.mode is Mode.MAX else best - value
        return gain > self.min_delta


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What has to be remembered of the evaluations so far."""

    best: float | None = None
    since_best: int = 0
    """Evaluations in a row without improvement."""
    best_step: int | None = None
    """Optimizer steps before the best one."""

    def after(self, value: float, step: int, how: EarlyStopping) -> "Evaluations":
        """With one more evaluation."""
        if how.better(value, self.best):
            return Evaluations(value, 0, step)
        return Evaluations(self.best, self.since_best + 1, self.best_step)


class EarlyStop:
    """Decides when to end; its count is kept in checkpoints."""

    def __init__(self, how: EarlyStopping) -> None:
        """Args:
        how: when to end; after a resume a changed patience applies to the earlier evaluations too.
        """
        self._how = how
        self._evaluations = Evaluations()

    @property
    def due(self) -> bool:
        """Whether the training should end."""
        return self.no_improvement_for >= self._how.patience

    @property
    def no_improvement_for(self) -> int:
        """Evaluations in a row without improvement, 0 after an improvement."""
        return self._evaluations.since_best

    @property
    def best_step(self) -> int | None:
        """Optimizer steps before the best evaluation, None before the first."""
        return self._evaluations.best_step

    def add(self, value: float, step: int) -> None:
        """Count an evaluation after this number of optimizer steps."""
        self._evaluations = self._evaluations.after(value, step, self._how)

    def state_dict(self) -> dict[str, Any]:
        """The count so far."""
        return asdict(self._evaluations)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved count."""
        # By position: checkpoints of older versions have other names.
        self._evaluations = Evaluations(*state_dict.values())
