"""How far a training has come."""

from typing import NamedTuple


class Position(NamedTuple):
    """How far a training has come. The same on every rank.

    A tuple, as `Part` is, because each step makes one.
    """

    epoch: int = 0
    """Completed epochs."""
    consumed: int = 0
    """Samples of the current epoch consumed by all ranks together."""
    step: int = 0
    """Completed optimizer steps, including those before a resume."""
