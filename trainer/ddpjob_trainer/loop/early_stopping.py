"""When a training has learned all that it will: evaluations that bring nothing better end it."""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """Which of two evaluations is the better one."""

    MAX = "max"
    """The larger, as of accuracies."""
    MIN = "min"
    """The smaller, as of losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopping:
    """After how many evaluations without anything better a training ends."""

    patience: int
    """Evaluations in a row that bring nothing better; with the last of them the training ends."""
    min_delta: float = 0.0
    """By more than this an evaluation must be better than the best one so far to count."""
    mode: Mode = Mode.MAX

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1, not {self.patience}")
        if not 0 <= self.min_delta < math.inf:
            raise ValueError(f"min_delta must be a number that is not below 0, not {self.min_delta}")
        # A plain word is taken too.
        object.__setattr__(self, "mode", Mode(self.mode))

    def better(self, value: float, best: float | None) -> bool:
        """Whether an evaluation counts as better than the best so far; NaN never does."""
        if math.isnan(value) or best is None:
            return not math.isnan(value)
        gain = value - best if self.mode is Mode.MAX else best - value
        return gain > self.min_delta


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What there is to remember of evaluations."""

    best: float | None = None
    in_vain: int = 0
    """Evaluations since the best one."""
    best_step: int | None = None
    """Optimizer steps before the best one."""

    def after(self, value: float, step: int, how: EarlyStopping) -> "Evaluations":
        """With one more evaluation."""
        if how.better(value, self.best):
            return Evaluations(value, 0, step)
        return Evaluations(self.best, self.in_vain + 1, self.best_step)


class EarlyStop:
    """Says when to end, and keeps its count in checkpoints."""

    def __init__(self, how: EarlyStopping) -> None:
        """Args:
        how: when to end; after a resume another patience counts for the evaluations before it too.
        """
        self._how = how
        self._evaluations = Evaluations()

    @property
    def due(self) -> bool:
        """Whether the training is to end."""
        return self._evaluations.in_vain >= self._how.patience

    @property
    def best_step(self) -> int | None:
        """Optimizer steps before the best evaluation, None before the first."""
        return self._evaluations.best_step

    def add(self, value: float, step: int) -> None:
        """Count an evaluation after so many optimizer steps."""
        self._evaluations = self._evaluations.after(value, step, self._how)

    def state_dict(self) -> dict[str, Any]:
        """The count so far."""
        return asdict(self._evaluations)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with a count."""
        self._evaluations = Evaluations(**state_dict)
