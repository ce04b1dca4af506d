"""The page of the benchmark: what was measured, against what no recovery can do without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from hack.bench.recovery.faults import OF_PROCESSES, TITLES, Fault
from hack.bench.recovery.floor import Floor
from hack.bench.recovery.manifests import DEADLINE_SECONDS
from hack.bench.recovery.marks import Recovery
from hack.bench.recovery.watch import PodTimes

GOALS: Mapping[Fault, str] = {
    Fault.PROCESS: "",
    Fault.SPARE: "2 s",
    Fault.RESTART: "2 s above the floor",
    Fault.POD: "4 s above the floor",
    Fault.REJOIN: "",
    Fault.SPARE_NODE: "",
    Fault.HANG: f"detected within 10 s (deadline {DEADLINE_SECONDS} s)",
    Fault.NODE: "5 s above the floor, after it is marked lost",
}


PLAIN_PATIENCE: Final = 60.0
"""Seconds after which plain torchrun is taken not to come back."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One recovery: seconds from the fault, None where it was not seen."""

    noticed: float | None
    gone: float | None
    running: float | None
    started: float | None
    imported: float | None
    met: float | None
    total: float | None
    again: int | None = None
    """Steps that were finished before, and were made again."""

    @classmethod
    def of(
        cls,
        at: float,
        recovery: Recovery | None,
        newer: Sequence[PodTimes],
        older: Sequence[PodTimes],
        attempt: float | None,
    ) -> "Sample":
        """A sample from moments on one clock.

        Args:
            at: when the fault was done.
            recovery: of the ranks, None where they did not come back.
            newer: pods that were made after it.
            older: pods that were there before.
            attempt: when the status named the next attempt.
        """
        gone = max((times.gone for times in older), default=0.0) if newer else 0.0
        running = max((times.running for times in newer), default=0.0)
        return cls(
            noticed=None if attempt is None else attempt - at,
            gone=gone - at if gone > at else None,
            running=running - at if running > at else None,
            started=None if recovery is None else recovery.started - at,
            imported=None if recovery is None else recovery.imported - at,
            met=None if recovery is None else recovery.met - at,
            total=None if recovery is None else recovery.stepped - at,
            again=None if recovery is None else recovery.again,
        )


def quantile(values: Sequence[float | None], part: float) -> float | None:
    """The nearest-rank quantile of what was seen; what was not seen counts as later than all that was."""
    if not values:
        return None
    ordered = sorted(values, key=lambda value: (value is None, value or 0.0))
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def report(
    samples: Mapping[tuple[Fault, bool], Sequence[Sample]],
    floor: Floor,
    marked: Sequence[float],
    commit: str,
    command: str,
) -> str:
    """The page, in Markdown."""
    lines = [
        "# Recovery",
        "",
        f'`make bench-recovery ARGS="{command}"` at commit `{commit}`:',
        "seconds from the fault to the next optimizer step on all 4 ranks (2 nodes x 2 processes, gloo, kind on",
        "one machine), p50 / p95.",
        "",
        f"Floor in the same run: {floor.pods:.1f} s until pods run, {floor.launcher:.1f} s to import torch in the",
        f"launcher, then {floor.workers:.1f} s in the workers: {floor.of_pods:.1f} s for pods;",
        f"{floor.of_processes:.1f} s for processes, which restart inside running pods.",
        "",
        "| fault | system | runs | total | above the floor (p50) | goal | finished steps made again |",
        "|---|---|---|---|---|---|---|",
    ]
    for (fault, managed), found in samples.items():
        least = floor.of_processes if fault in OF_PROCESSES else floor.of_pods
        total = [sample.total for sample in found]
        middle = quantile(total, 0.5)
        above = "-" if middle is None or not managed else f"{middle - least:.1f}"
        goal = GOALS[fault] if managed else ""
        system = "ddpjob" if managed else "torchrun in a StatefulSet"
        again = sum(sample.again or 0 for sample in found)
        lines.append(f"| {TITLES[fault]} | {system} | {len(found)} | {_both(total)} | {above} | {goal} | {again} |")
    if any(sample.total is None for found in samples.values() for sample in found):
        lines += ["", f"A dash means that training did not continue within {PLAIN_PATIENCE:.0f} s."]
    lines += [
        "",
        "| fault | detected | old pods gone | new pods run | processes started | torch imported | rendezvous | step |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for (fault, managed), found in samples.items():
        if managed:
            parts = [
                _both([getattr(sample, name) for sample in found])
                for name in ("noticed", "gone", "running", "started", "imported", "met", "total")
            ]
            lines.append(f"| {TITLES[fault]} | {' | '.join(parts)} |")
    if marked:
        lines += [
            "",
            f"The control plane marked a frozen node as lost after {_both(list(marked))} s. The seconds for the loss",
            "of a node count from that moment. The stall of its ranks was detected earlier, hence negative figures.",
        ]
    return "\n".join(lines) + "\n"


def _both(values: Sequence[float | None]) -> str:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    return f"{text(quantile(values, 0.5))} / {text(quantile(values, 0.95))}"
