"""What a training has done."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a training has done; the same on all ranks."""

    steps: int
    """Of the optimizer, including those before a resume."""
    epochs: int
    """That were read to their end, including those before a resume."""
    samples: int
    """That all ranks together have consumed, since the resume if there was one."""
    metrics: Mapping[str, float]
    """What the last evaluation has found, by name; empty without one."""
    best_metrics: Mapping[str, float]
    """What the best evaluation has found; empty without one, or where none of the numbers counts."""
    best_step: int | None
    """Steps before the best evaluation. With `Settings.keep_best` its checkpoint is kept."""
    resumed_from: int | None
    """Step of the checkpoint that it went on from; None: it began at the beginning."""
    ended_early: str | None
    """Why it ended before all its epochs or steps; None: it did not."""
