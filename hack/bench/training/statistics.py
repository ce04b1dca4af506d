"""Figures of a few noisy measurements, without assuming how the noise is distributed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb
from statistics import median
from typing import Final

_ERROR: Final = 0.05
LEAST_VALUES: Final = 6
"""With fewer there is no interval: all lie on one side of the true median in one case of 16."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with the interval in which the true one lies in at least 95 of 100 cases."""

    median: float
    low: float
    high: float
    count: int


def estimate(values: Sequence[float]) -> Estimate:
    """The median of independent measurements and its interval by order statistics.

    Raises:
        ValueError: there are fewer than 6: even their least and greatest are not an interval.
    """
    ordered = sorted(values)
    first = order_of_interval(len(ordered))
    return Estimate(median(ordered), ordered[first - 1], ordered[-first], len(ordered))


def order_of_interval(count: int) -> int:
    """Which of the sorted values, from either end, bounds the interval of the median; the outermost is 1.

    The true median lies beyond the k-th smallest of n values only if fewer than k of n fair coins show heads.

    Raises:
        ValueError: there are fewer than `LEAST_VALUES`.
    """
    found, beyond = 0, 0.0
    while True:
        beyond += comb(count, found) / 2**count
        if 2 * beyond > _ERROR:
            break
        found += 1
    if found == 0:
        raise ValueError(f"{count} measurements have no interval of the median: at least {LEAST_VALUES} are needed")
    return found


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile."""
    return sorted(values)[max(0, ceil(percent / 100 * len(values)) - 1)]
