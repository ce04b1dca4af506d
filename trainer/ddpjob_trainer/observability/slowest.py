"""Which rank slows down the others, judged from what each has measured of its own part of the steps.

A rank is named once its part took `NAMED_FROM` times as long as the median of the others' in `WINDOWS` windows in a
row, and no longer once it took less than `CLEARED_BELOW` times as long in as many: one slow moment names nobody, and
one quick moment clears nobody.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final, NamedTuple

NAMED_FROM: Final = 1.3
"""Times as long as the others."""
CLEARED_BELOW: Final = 1.15
WINDOWS: Final = 3
WINDOW_SECONDS: Final = 5.0
"""Seconds of training that a window has at least."""
LEAST_MEASURED: Final = 3
"""Steps that each rank has measured in a window at least."""
LEAST_SHARE: Final = 0.1
"""Part of the time of a step by which a rank's own part must exceed the others': a rank that takes 2 ms instead of 1 ms
for its part of a second slows nobody down."""
MOST_TIMES: Final = 1000.0
"""The largest factor that is given, where the others' part is next to nothing."""


class Part(StrEnum):
    """What a rank does by itself."""

    DATA = "Data"
    """Waiting for its data loader."""
    COMPUTING = "Computing"
    """The forward and the backward pass."""
    CHECKPOINT = "Checkpoint"
    """Saving."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """The rank that slows down the others."""

    rank: int
    factor: float
    """How many times as long as the median of the others it takes for its own part of a step, to one decimal."""
    what: Part
    """With which of its parts it takes longer than the others."""


class OwnSeconds(NamedTuple):
    """What a rank has measured since it was last asked."""

    steps: float = 0
    """Optimizer steps."""
    measured: float = 0
    """How many of them were measured."""
    data: float = 0
    """Seconds of the measured steps in which it waited for its data."""
    computing: float = 0
    """Seconds of the measured steps in which it computed, without waiting for another rank."""
    checkpoint: float = 0
    """Seconds in which it wrote checkpoints."""
    elapsed: float = 0
    """Seconds of all its steps and checkpoints, with everything that it waited for."""


_Parts = tuple[float, float, float]
"""Seconds per step, in the order of `Part`."""


class SlowestRank:
    """Finds the rank that slows down the others. Pure: the time that has passed is what the ranks say."""

    def __init__(self) -> None:
        self.found: Slowest | None = None
        """The rank that is named now."""
        self._sums: list[list[float]] = []
        self._parts: deque[list[_Parts]] = deque(maxlen=WINDOWS)
        self._factors: deque[list[float]] = deque(maxlen=WINDOWS)

    def add(self, ranks: Sequence[Sequence[float]]) -> bool:
        """Take in what all ranks have measured since the last call.

        Args:
            ranks: the `OwnSeconds` of each, in the order of ranks; all have made the same steps.

        Returns:
            Whether `found` has changed.
        """
        if len(ranks) != len(self._sums):
            # Other ranks than before: the numbers mean others.
            self._sums = [[0.0] * len(OwnSeconds._fields) for _ in ranks]
            self._parts.clear()
            self._factors.clear()
        for total, each in zip(self._sums, ranks, strict=True):
            for index, value in enumerate(each):
                total[index] += value
        whole = [OwnSeconds(*total) for total in self._sums]
        before = self.found
        if len(whole) < 2:  # noqa: PLR2004 there are no others
            self.found = None
        elif whole[0].elapsed >= WINDOW_SECONDS and min(each.measured for each in whole) >= LEAST_MEASURED:
            self._sums = [[0.0] * len(OwnSeconds._fields) for _ in ranks]
            self._parts.append([_per_step(each) for each in whole])
            self._factors.append(_factors(self._parts[-1], whole[0].elapsed / whole[0].steps))
            self.found = self._judged()
        elif not self._factors:
            self.found = None
        return self.found != before

    def _judged(self) -> Slowest | None:
        if len(self._factors) < WINDOWS:
            return None
        least = [min(each) for each in zip(*self._factors, strict=True)]
        most = [max(each) for each in zip(*self._factors, strict=True)]
        named = None if self.found is None or most[self.found.rank] < CLEARED_BELOW else self.found.rank
        worst = max(range(len(least)), key=lambda rank: least[rank])
        if least[worst] >= NAMED_FROM and (named is None or least[worst] > most[named]):
            named = worst
        if named is None:
            return None
        factor = median(each[named] for each in self._factors)
        return Slowest(named, round(factor, 1), self._what(named))

    def _what(self, rank: int) -> Part:
        """The part that takes the rank longer than the others, by the most seconds in all the windows."""
        excess = [0.0] * len(Part)
        for window in self._parts:
            for index in range(len(Part)):
                others = median(each[index] for number, each in enumerate(window) if number != rank)
                excess[index] += window[rank][index] - others
        return list(Part)[excess.index(max(excess))]


def _per_step(own: OwnSeconds) -> _Parts:
    return own.data / own.measured, own.computing / own.measured, own.checkpoint / own.steps


def _factors(parts: Sequence[_Parts], step_seconds: float) -> list[float]:
    """How many times as long as the median of the others each rank takes; 1 where that hardly matters to a step."""
    own = [sum(each) for each in parts]
    order = sorted(range(len(own)), key=lambda rank: own[rank])
    factors = [1.0] * len(own)
    for place, rank in enumerate(order):
        others = _median_without(own, order, place)
        if own[rank] - others >= LEAST_SHARE * step_seconds and own[rank] > others:
            factors[rank] = min(own[rank] / others, MOST_TIMES) if others > 0 else MOST_TIMES
    return factors


def _median_without(values: Sequence[float], order: Sequence[int], place: int) -> float:
    """The median of all values but one, in the time that looking at two of them takes.

    Args:
        values: by rank.
        order: the ranks by their values.
        place: in `order`, of the one that is left out.
    """
    left = len(order) - 1

    def at(index: int) -> float:
        return values[order[index + (index >= place)]]

    return (at((left - 1) // 2) + at(left // 2)) / 2
