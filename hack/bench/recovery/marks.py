"""Where each rank was when: read from the shared volume, on the host or through a pod."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of hack/bench/recovery/program.py: `at` in seconds of the host's clock."""

    rank: int
    process: str
    what: str
    at: float
    step: int | None = None
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Moments of one recovery, in seconds of the host's clock: of the slowest rank each."""

    started: float
    imported: float
    met: float
    stepped: float
    again: int = 0
    """Steps that were finished before the fault, and are made again."""


def read_marks(folder: Path) -> list[Mark]:
    """All marks in a folder; a line that is just being written is left out."""
    marks: list[Mark] = []
    for file in folder.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                raw = json.loads(line)
            except ValueError:
                continue
            marks.append(Mark(raw["rank"], file.stem, raw["what"], raw["at"], raw.get("step"), raw.get("pid", 0)))
    return marks


def recovery_after(marks: Iterable[Mark], fault: float, ranks: int) -> Recovery | None:
    """How all ranks came back after a fault, None while they have not.

    A rank has come back with the first step of a process that started after the fault; its last such process counts,
    since one that started and had to start again has not helped. A rank that has kept its process has come back with
    its first step after it has met a new one.

    Args:
        marks: of all processes.
        fault: when it was done.
        ranks: how many there are.
    """
    processes: dict[str, dict[str, Mark]] = {}
    every = list(marks)
    for mark in every:
        first = processes.setdefault(mark.process, {})
        if mark.what not in first or mark.at < first[mark.what].at:
            first[mark.what] = mark
    back: dict[int, dict[str, Mark]] = {}
    for first in processes.values():
        if "step" not in first or "started" not in first or first["started"].at <= fault:
            continue
        rank = first["step"].rank
        if rank not in back or first["step"].at < back[rank]["step"].at:
            back[rank] = first
    if not back:
        return None
    first_step = min(found["step"].step or 0 for found in back.values())
    met = min(found["met"].at for found in back.values())
    stepped = {rank: found["step"].at for rank, found in back.items()}
    for mark in every:
        if mark.what == "step" and mark.rank not in back and mark.at > met:
            stepped[mark.rank] = min(mark.at, stepped.get(mark.rank, mark.at))
    if len(stepped) < ranks:
        return None
    latest = {what: max(first[what].at for first in back.values()) for what in ("started", "imported", "met")}
    before = max((mark.step or 0 for mark in every if mark.what == "step" and mark.at <= fault), default=0)
    again = max(0, before - first_step + 1)
    return Recovery(latest["started"], latest["imported"], latest["met"], max(stepped.values()), again)


def newest_steps(marks: Iterable[Mark]) -> dict[int, Mark]:
    """The last step of each rank."""
    newest: dict[int, Mark] = {}
    for mark in marks:
        if mark.what == "step" and (mark.rank not in newest or mark.at > newest[mark.rank].at):
            newest[mark.rank] = mark
    return newest
