"""How far a training has come."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """How far a training has come. The same on every rank."""

    epoch: int = 0
    """Completed epochs."""
    consumed: int = 0
    """Samples of the current epoch consumed by all ranks together."""
    step: int = 0
    """Completed optimizer steps, including those before a resume."""
