"""The directives of a PBS script (PBS Pro, OpenPBS, Torque)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ddpjob.convert import remedies
from ddpjob.convert.directives import Directive
from ddpjob.convert.notes import Note
from ddpjob.convert.pbs_requests import MARKER, Request, all_requests
from ddpjob.convert.resources import Allocation, Resources, pbs_memory, pbs_seconds
from ddpjob.convert.srun import Tasks
from ddpjob_core.api.constants import is_reserved_env

_NOTES: Final[Mapping[str, str]] = {
    "q": "not carried over: there are no queues; nodeSelector and tolerations of spec.template choose nodes",
    "P": "not carried over: -n chooses the namespace, whose quota replaces that of a project",
    "A": remedies.QUOTA,
    "j": remedies.LOGS,
    "o": remedies.LOGS,
    "e": remedies.LOGS,
    "k": remedies.LOGS,
    "m": remedies.MAIL,
    "M": remedies.MAIL,
    "V": "not carried over: pods do not see your environment; spec.trainer.env and envFrom set variables",
    "S": "not carried over: the program is started without a shell",
    "r": remedies.RESTART,
    "p": remedies.PRIORITY,
    "W": remedies.DEPENDENCY,
    "J": remedies.ARRAY,
    "t": remedies.ARRAY,
    "h": remedies.HOLD,
    "a": remedies.BEGIN,
    "d": remedies.WORKING_FOLDER,
}
_LATE: Final = "not carried over: it comes after the first command, where PBS does not look"
_RESOURCE_NOTES: Final[Mapping[str, str]] = {
    "place": "not carried over: topologySpreadConstraints or affinity of spec.template place pods",
    "storage": "not carried over: mount file systems with volumes of spec.template and spec.trainer.volumeMounts",
    "jobfs": remedies.SCRATCH,
    "wd": remedies.WORKING_FOLDER,
    "software": "not carried over: what it provides belongs in the image",
    **dict.fromkeys(
        ("pmem", "vmem", "pvmem"), "not carried over: mem= becomes the memory per node in spec.trainer.resources"
    ),
    "feature": "not carried over: nodeSelector of spec.template chooses nodes",
}


@dataclass(slots=True)
class _Asked:
    """What the directives read so far ask for."""

    name: str = ""
    nodes: int | None = None
    processes: int | None = None
    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None
    seconds: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, directive: Directive, text: str, message: str) -> None:
        """Keep a note about a directive."""
        self.notes.append(Note(directive.line, text, message))


def pbs_allocation(given: Sequence[Directive]) -> tuple[Allocation, list[Note]]:
    """What the directives ask for, and what is not carried over.

    Amounts are totals over all nodes, as those of `-l ncpus=` and `mem=` and the sum of the chunks are.
    """
    requests, contradictions = all_requests(given)
    asked = _Asked(notes=contradictions)
    for request in requests:
        _resource(request, asked)
    for directive in given:
        if directive.late:
            asked.note(directive, directive.raw, _LATE)
        elif directive.name == "l":
            continue
        elif directive.name == "N":
            asked.name, asked.lines["name"] = directive.value, directive.line
        elif directive.name == "v":
            _variables(directive, asked)
        else:
            asked.note(directive, directive.raw, _NOTES.get(directive.name, remedies.UNKNOWN))
    total = Resources(asked.cpus, asked.memory, asked.gpus)
    each = None if asked.processes is None or not asked.nodes else asked.processes // asked.nodes
    return (
        Allocation(
            asked.name,
            asked.nodes or None,
            Tasks(asked.nodes or None, each, asked.processes),
            total=total,
            seconds=asked.seconds,
            env=asked.env,
            lines=asked.lines,
            written=asked.written,
        ),
        asked.notes,
    )


def pbs_variables(allocation: Allocation) -> dict[str, str]:
    """The variables that PBS sets, as far as they follow from the directives."""
    total = allocation.total
    counts = {
        "PBS_NCPUS": total.cpus,
        "PBS_NGPUS": total.gpus,
        "PBS_NP": total.cpus,
        "PBS_NUM_NODES": allocation.nodes,
        "PBS_NNODES": allocation.nodes,
        "PBS_NUM_PPN": allocation.tasks.per_node,
    }
    known = {name: str(count) for name, count in counts.items() if count is not None}
    return {**known, **({"PBS_JOBNAME": allocation.name} if allocation.name else {}), **allocation.env}


def _resource(request: Request, asked: _Asked) -> None:
    directive, key, value, written = request.directive, request.key, request.value, request.written
    asked.lines.setdefault(key, directive.line)
    asked.written[key] = written
    if key == "walltime":
        asked.seconds = pbs_seconds(value)
        if not asked.seconds:
            asked.note(directive, written, "not a valid time: spec.activeDeadlineSeconds is left out")
    elif key in ("nodes", "select"):
        (_torque if key == "nodes" else _chunks)(directive, value, asked)
    elif key in ("mem", "ncpus", "ngpus"):
        if not _amount(key, value, 1, asked):
            asked.note(directive, written, "not a valid amount: it is left out of spec.trainer.resources")
    else:
        asked.note(directive, written, _RESOURCE_NOTES.get(key, remedies.UNKNOWN))


def _amount(key: str, value: str, times: int, asked: _Asked) -> bool:
    """Add what a number of chunks, or the whole job, asks for; whether the amount is valid."""
    if key == "mem":
        size = pbs_memory(value)
        if size is None:
            return False
        asked.memory = (asked.memory or 0) + size * times
        return True
    if not value.isdecimal():
        return False
    count = int(value[:9]) * times
    if key in ("ncpus", "ppn"):
        asked.cpus = (asked.cpus or 0) + count
    elif key in ("ngpus", "gpus"):
        asked.gpus = (asked.gpus or 0) + count
    if key in ("mpiprocs", "ppn"):
        asked.processes = (asked.processes or 0) + count
    return True


_CHUNK_AMOUNTS: Final = ("ncpus", "ngpus", "mem", "mpiprocs")


def _chunks(directive: Directive, text: str, asked: _Asked) -> None:
    """`2:ncpus=48:ngpus=4:mem=190gb+1:ncpus=4`: one chunk counts as one node."""
    asked.lines["nodes"] = directive.line
    kinds = text.split("+")
    for kind in kinds:
        parts = kind.split(":")
        count = int(parts[0][:9]) if parts[0].isdecimal() else 1
        asked.nodes = (asked.nodes or 0) + count
        for part in parts[1:] if parts[0].isdecimal() else parts:
            key, _, value = part.partition("=")
            asked.lines.setdefault(key, directive.line)
            if key not in _CHUNK_AMOUNTS or not _amount(key, value, count, asked):
                asked.note(directive, f"{MARKER} -l select=...:{part}", _chunk_message(key))
    if len(kinds) > 1:
        asked.note(directive, directive.raw, "all nodes of a job are alike: each gets an equal share of the total")


def _chunk_message(key: str) -> str:
    if key == "ompthreads":
        return "not carried over: set OMP_NUM_THREADS in spec.trainer.env"
    return "not carried over: nodeSelector of spec.template chooses nodes"


def _torque(directive: Directive, text: str, asked: _Asked) -> None:
    """`2:ppn=4:gpus=2`, or names of nodes."""
    asked.lines["nodes"] = directive.line
    for kind in text.split("+"):
        parts = kind.split(":")
        numbered = parts[0].isdecimal()
        count = int(parts[0][:9]) if numbered else 1
        asked.nodes = (asked.nodes or 0) + count
        if not numbered:
            asked.note(
                directive,
                f"{MARKER} -l nodes={parts[0]}",
                "counted as one node: nodeSelector of spec.template can choose it",
            )
        for part in parts[1:]:
            key, _, value = part.partition("=")
            asked.lines.setdefault({"ppn": "ncpus", "gpus": "ngpus"}.get(key, key), directive.line)
            if key not in ("ppn", "gpus") or not _amount(key, value, count, asked):
                asked.note(directive, f"{MARKER} -l nodes=...:{part}", _chunk_message(key))


def _variables(directive: Directive, asked: _Asked) -> None:
    for item in filter(None, directive.value.split(",")):
        name, equals, value = item.partition("=")
        if is_reserved_env(name):
            asked.note(directive, f"{MARKER} -v {item}", f"not needed: the launcher sets {name}")
        elif equals:
            asked.env[name] = value
        else:
            asked.note(
                directive,
                f"{MARKER} -v {item}",
                f"not carried over: pods do not see your environment; set {name} in spec.trainer.env",
            )
