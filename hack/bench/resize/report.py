"""The table of the benchmark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hack.bench.recovery.marks import Mark, recovery_after
from hack.bench.recovery.report import quantile


class Change(StrEnum):
    """What is changed."""

    SHRINK = "2 to 1 nodes"
    GROW = "1 to 2 nodes"


@dataclass(frozen=True, slots=True)
class Sample:
    """One change of size: seconds from the request to the first step of all ranks, and seconds without any step."""

    total: float
    interrupted: float

    @classmethod
    def of(cls, at: float, marks: Iterable[Mark], ranks: int) -> "Sample":
        """A sample from marks in which all ranks have made a step at the new size.

        Args:
            at: when the change was requested.
            marks: of all processes.
            ranks: how many there are at the new size.
        """
        known = list(marks)
        found = recovery_after(known, at, ranks)
        if found is None:
            raise ValueError("not all ranks have made a step")
        newer = {mark.process for mark in known if mark.what == "started" and mark.at > at}
        before = max(mark.at for mark in known if mark.what == "step" and mark.process not in newer)
        return cls(found.stepped - at, found.stepped - before)


def page(
    in_place: Mapping[Change, Sequence[Sample]], restarted: Mapping[Change, Sequence[Sample]], commit: str, command: str
) -> str:
    """The table, in Markdown."""
    lines = [
        f'`make bench-resize ARGS="{command}"` at commit `{commit}`, p50 / p95 in seconds:',
        "",
        "| change | by | runs | from the request to the first step of all ranks | without any step |",
        "|---|---|---|---|---|",
    ]
    for how, samples in (("`kubectl scale`", in_place), ("suspend, scale, resume", restarted)):
        for change, found in samples.items():
            total, interrupted = _both([each.total for each in found]), _both([each.interrupted for each in found])
            lines.append(f"| {change.value} | {how} | {len(found)} | {total} | {interrupted} |")
    return "\n".join(lines) + "\n"


def _both(values: Sequence[float]) -> str:
    middle, late = quantile(values, 0.5), quantile(values, 0.95)
    return "-" if middle is None or late is None else f"{middle:.1f} / {late:.1f}"
