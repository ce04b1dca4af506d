"""What a scheduler was asked for: amounts in its own units, and as Kubernetes quantities."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ddpjob.convert.srun import Tasks

_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_PBS_MEMORY: Final = re.compile(r"(\d{1,15})([kmgtp]?)([bw]?)", re.IGNORECASE)
_SLURM_MEMORY: Final = re.compile(r"(\d{1,15})([kmgt]?)b?", re.IGNORECASE)
_WORD_BYTES: Final = 8
_MEBI: Final = 1024**2
_QUANTITIES: Final = (("Gi", 1024**3), ("Mi", _MEBI), ("Ki", 1024))


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts for one node or for all nodes together; None if nothing was requested.

    Attributes:
        cpus: whole CPUs.
        memory: bytes.
        gpus: whole GPUs.
    """

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None

    def shared_by(self, nodes: int) -> "Resources":
        """The share of one node."""
        return Resources(
            None if self.cpus is None else max(1, self.cpus // nodes),
            None if self.memory is None else self.memory // nodes,
            None if self.gpus is None else math.ceil(self.gpus / nodes),
        )

    def over(self, other: "Resources") -> "Resources":
        """These amounts, with missing ones taken from another."""
        return Resources(
            other.cpus if self.cpus is None else self.cpus,
            other.memory if self.memory is None else self.memory,
            other.gpus if self.gpus is None else self.gpus,
        )

    def limits(self) -> dict[str, str | int]:
        """resources.limits of a container, which are also its requests."""
        found: dict[str, str | int] = {}
        if self.cpus:
            found["cpu"] = self.cpus
        if self.memory:
            found["memory"] = quantity(self.memory)
        if self.gpus:
            found["nvidia.com/gpu"] = self.gpus
        return found


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a job script asks its scheduler for.

    Attributes:
        name: of the job.
        nodes: None if it does not say.
        tasks: what srun starts.
        each: the resources of one node.
        total: the resources of all nodes together.
        seconds: wall time.
        env: variables that the scheduler gives to the job.
        lines: the line number of each of them.
        written: the directives of the totals, as written.
    """

    name: str = ""
    nodes: int | None = None
    tasks: Tasks = field(default_factory=Tasks)
    each: Resources = Resources()
    total: Resources = Resources()
    seconds: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)


def quantity(amount: int) -> str:
    """Bytes as a Kubernetes quantity: the largest unit that divides them, else whole Mi."""
    for unit, size in _QUANTITIES:
        if amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount // _MEBI}Mi" if amount > _MEBI else str(amount)


def pbs_memory(text: str) -> int | None:
    """The bytes in 10GB, 512mb or 4gw (words of 8 bytes); units of PBS are powers of 1024."""
    match = _PBS_MEMORY.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) * _UNITS[match[2].lower()] * (_WORD_BYTES if match[3].lower() == "w" else 1)


def slurm_memory(text: str) -> int | None:
    """The bytes in 64G; a number without a unit is in MiB."""
    match = _SLURM_MEMORY.fullmatch(text)
    return int(match[1]) * _UNITS[match[2].lower() or "m"] if match else None


def pbs_seconds(text: str) -> int | None:
    """The seconds in HH:MM:SS, MM:SS or plain seconds."""
    if not re.fullmatch(r"\d{1,9}(:\d{1,9}){0,2}(\.\d*)?", text):
        return None
    seconds = 0
    for part in text.partition(".")[0].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


_SLURM_TIME: Final = re.compile(
    r"(?:(?P<days>\d{1,6})-(?P<day_hours>\d{1,6})(?::(?P<day_minutes>\d{1,6})(?::(?P<day_seconds>\d{1,6}))?)?"
    r"|(?:(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,9}):(?P<seconds>\d{1,6}))|(?P<alone>\d{1,9}))"
)


def slurm_seconds(text: str) -> int | None:
    """The seconds in every form of --time: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS."""
    match = _SLURM_TIME.fullmatch(text)
    if match is None:
        return None
    part = {name: int(value) for name, value in match.groupdict().items() if value}
    hours = part.get("days", 0) * 24 + part.get("day_hours", 0) + part.get("hours", 0)
    minutes = part.get("day_minutes", 0) + part.get("minutes", 0) + part.get("alone", 0)
    return hours * 3600 + minutes * 60 + part.get("day_seconds", 0) + part.get("seconds", 0)
