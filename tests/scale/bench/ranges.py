"""What a run of the benchmark has to show: ranges with their provenance, in ranges.yaml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import yaml

from tests.scale.bench.cases import Case, Quiet, Rate, Replaced, Restarted
from tests.scale.bench.fairness import Fairness
from tests.scale.bench.large import Thousands
from tests.scale.bench.mixed import Mixed

RANGES: Final = Path(__file__).with_name("ranges.yaml")


@dataclass(frozen=True, slots=True)
class Range:
    """What a figure has to be, what it should become, and what it was when the range was set."""

    figure: str
    what: str
    goal: float
    measured: str
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if it does not have exactly one bound."""
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"{self.figure}: give either at_least or at_most")

    def holds(self, value: float) -> bool:
        """Whether a value is within it; NaN is not."""
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)

    def line(self, value: float) -> str:
        """For a person."""
        bound = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        verdict = "" if self.holds(value) else f"  OUT OF RANGE, it was {self.measured}"
        return f"{self.what}: {value:.2f} ({bound}, goal {self.goal:g}){verdict}"


def ranges() -> list[Range]:
    """All of them."""
    return [Range(**each) for each in yaml.safe_load(RANGES.read_text())]


def judged(wanted: Sequence[Range], found: Mapping[str, float]) -> tuple[list[str], bool]:
    """A line for each range whose figure there is, and whether all of these hold."""
    there = [(each, found[each.figure]) for each in wanted if each.figure in found]
    return [each.line(value) for each, value in there], all(each.holds(value) for each, value in there)


def figures(results: Mapping[str, Sequence[Case]]) -> dict[str, float]:
    """What the ranges are about, each the median of the runs; a case that was not run has none."""
    found: dict[str, list[float]] = {}
    for run in zip(*(_rates(results, "one")[start::3] for start in range(3)), strict=True):
        _add(found, _of_one(*run))
    for run in zip(*(_rates(results, "many")[start::2] for start in range(2)), strict=True):
        _add(found, _of_many(*run))
    for name, each in ((name, case) for name, cases in results.items() for case in cases):
        if isinstance(each, Restarted):
            _add(found, {"killed.complete": each.complete, "killed.gap": each.gap})
        if isinstance(each, Replaced):
            _add(found, {"gang.replaced": each.seconds})
        if isinstance(each, Quiet):
            _add(found, {"quiet.writes": each.writes, "quiet.cpu_percent": each.cpu_percent * 1000 / each.jobs})
        if isinstance(each, Thousands):
            _add(found, {f"{name}.peak": each.peak, **({f"{name}.gap": each.gap} if each.killed else {})})
        if isinstance(each, Mixed):
            _add(found, {"mixed.memory": each.memory, "mixed.touched": each.touched, "mixed.ready": each.ready_seconds})
        if isinstance(each, Fairness):
            _add(found, {"fairness.ratio": each.ratio})
    return {figure: median(values) for figure, values in found.items()}


def _of_one(bare: Rate, own: Rate, job: Rate) -> dict[str, float]:
    return {
        "one.rate_to_bare": own.per_second / bare.per_second,
        "one.rate_to_job": own.per_second / job.per_second,
        "one.server_to_bare": own.server_seconds / bare.server_seconds,
        "one.operator_to_server": own.operator_seconds / bare.server_seconds,
        "one.first_pod": own.first_ms / 1000 * bare.per_second,
    }


def _of_many(own: Rate, job: Rate) -> dict[str, float]:
    return {
        "many.rate_to_job": own.per_second / job.per_second,
        "many.operator_to_controller": own.operator_seconds / job.controller_seconds,
    }


def _rates(results: Mapping[str, Sequence[Case]], case: str) -> list[Rate]:
    return [each for each in results.get(case, ()) if isinstance(each, Rate)]


def _add(found: dict[str, list[float]], values: Mapping[str, float]) -> None:
    for figure, value in values.items():
        found.setdefault(figure, []).append(value)
