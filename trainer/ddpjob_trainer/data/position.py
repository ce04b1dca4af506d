"""How far a training has come."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """How far a training has come. The same on every rank."""

    epoch: int = 0
    """Completed epochs."""
    consumed: int = 0
    """Samples of the epoch in progress that all ranks together have consumed."""
    step: int = 0
    """Completed optimizer steps since the very beginning."""
