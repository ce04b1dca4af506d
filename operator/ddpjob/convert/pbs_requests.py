"""What `#PBS -l` asks for, item by item, and which items contradict each other.

PBS itself rejects a job-wide amount together with `select=`, and uses one of two amounts of the same resource. A note
gives both lines, because either amount may be the intended one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ddpjob.convert.directives import Directive
from ddpjob.convert.notes import Note, short

MARKER: Final = "#PBS"
_ONCE: Final = frozenset({"select", "nodes", "ncpus", "ngpus", "mem", "walltime"})
_CHUNKS: Final = ("select", "nodes")
_IN_CHUNKS: Final = {"ppn": "ncpus", "gpus": "ngpus"}


@dataclass(frozen=True, slots=True)
class Request:
    """One resource of a directive: `ncpus` and `96` of `#PBS -l ncpus=96,mem=10gb`."""

    directive: Directive
    key: str
    value: str

    @property
    def written(self) -> str:
        """The directive as if it asked only for this."""
        return f"{MARKER} -l {self.key}={self.value}" if self.value else f"{MARKER} -l {self.key}"

    @property
    def amounts(self) -> frozenset[str]:
        """The resources that chunks specify, by their job-wide names."""
        parts = (part.partition("=")[0] for kind in self.value.split("+") for part in kind.split(":"))
        return frozenset(_IN_CHUNKS.get(part, part) for part in parts)


def requests_of(directive: Directive) -> list[Request]:
    """The items of an option `-l`. Chunks contain colons and plus signs, but no commas."""
    items = (item.partition("=") for item in directive.value.split(",") if item)
    return [Request(directive, key.strip(), value.strip()) for key, _, value in items]


def without_contradictions(requests: Sequence[Request]) -> tuple[list[Request], list[Note]]:
    """The requests that count, and a note about each one that another contradicts."""
    dropped: dict[int, str] = {}
    last = {request.key: request for request in requests if request.key in _ONCE}
    chunks = next((last[key] for key in _CHUNKS if key in last), None)
    for place, request in enumerate(requests):
        newest = last.get(request.key)
        if newest is None:
            continue
        if request is not newest:
            # The same amount given twice counts once.
            same = request.value.lower() == newest.value.lower()
            dropped[place] = "" if same else _taken(newest, "keep one of the two")
        elif chunks is not None and _rivals(request, chunks):
            dropped[place] = _taken(chunks, "remove one of the two, as PBS requires")
    notes = [
        Note(requests[place].directive.line, requests[place].written, why) for place, why in dropped.items() if why
    ]
    return [request for place, request in enumerate(requests) if place not in dropped], notes


def _rivals(request: Request, chunks: Request) -> bool:
    if request.key == "nodes":
        return chunks.key == "select"
    return request.key in chunks.amounts


def _taken(taken: Request, advice: str) -> str:
    return f"contradicts line {taken.directive.line}, {short(taken.written)}, which is used instead: {advice}"


def all_requests(given: Iterable[Directive]) -> tuple[list[Request], list[Note]]:
    """The requests of a script's `-l` options that count, and notes about those that contradict each other."""
    options = (directive for directive in given if directive.name == "l" and not directive.late)
    return without_contradictions([request for directive in options for request in requests_of(directive)])
