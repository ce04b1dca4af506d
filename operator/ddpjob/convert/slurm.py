"""The directives of a Slurm script."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ddpjob.convert import remedies
from ddpjob.convert.directives import Directive
from ddpjob.convert.notes import Note
from ddpjob.convert.resources import Allocation, Resources, slurm_memory, slurm_seconds
from ddpjob.convert.srun import Tasks
from ddpjob_core.api.constants import is_reserved_env

MARKER: Final = "#SBATCH"

_LONG: Final[Mapping[str, str]] = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "J": "job-name",
    "p": "partition",
    "A": "account",
    "o": "output",
    "e": "error",
    "q": "qos",
    "C": "constraint",
    "D": "chdir",
    "w": "nodelist",
    "x": "exclude",
    "a": "array",
    "d": "dependency",
    "H": "hold",
    "b": "begin",
}
_CHOOSE: Final = "not carried over: nodeSelector and tolerations of spec.template choose nodes"
_NOTES: Final[Mapping[str, str]] = {
    "partition": _CHOOSE,
    "constraint": _CHOOSE,
    "nodelist": _CHOOSE,
    "exclude": _CHOOSE,
    "reservation": _CHOOSE,
    "cluster": _CHOOSE,
    "clusters": _CHOOSE,
    "account": remedies.QUOTA,
    "qos": remedies.PRIORITY,
    "output": remedies.LOGS,
    "error": remedies.LOGS,
    "open-mode": remedies.LOGS,
    "mail-type": remedies.MAIL,
    "mail-user": remedies.MAIL,
    "requeue": remedies.RESTART,
    "no-requeue": remedies.RESTART,
    "chdir": remedies.WORKING_FOLDER,
    "array": remedies.ARRAY,
    "dependency": remedies.DEPENDENCY,
    "hold": remedies.HOLD,
    "begin": remedies.BEGIN,
    "signal": "not carried over: a pod is stopped with SIGTERM and has spec.gracePeriodSeconds to save",
    "exclusive": "not carried over: a pod gets what it requests; podAntiAffinity of spec.template keeps others away",
    "tmp": remedies.SCRATCH,
    "gpu-bind": "not carried over: LOCAL_RANK chooses the GPU of a process",
}
_LATE: Final = "not carried over: it comes after the first command, where Slurm does not look"
_COUNTS: Final = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu")
_GPUS: Final = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
_MEMORIES: Final = ("mem", "mem-per-cpu", "mem-per-gpu")


class _Asked:
    """The options by their long names, as far as they are valid."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.name = ""
        self.seconds: int | None = None
        self.env: dict[str, str] = {}
        self.lines: dict[str, int] = {}
        self.written: dict[str, str] = {}
        self.notes: list[Note] = []

    def read(self, directive: Directive) -> None:
        """Take one option."""
        name = _LONG.get(directive.name, directive.name)
        self.lines[name] = directive.line
        if name == "gpus":
            self.written["ngpus"] = directive.raw
        if directive.late:
            self._note(directive, _LATE)
        elif name in (*_COUNTS, *_GPUS, *_MEMORIES):
            self._number(name, directive)
        elif name == "job-name":
            self.name = directive.value
        elif name == "time":
            self.seconds = slurm_seconds(directive.value)
            if not self.seconds:
                self._note(directive, "no time limit is carried over: set spec.activeDeadlineSeconds for one")
        elif name == "export":
            self.notes += _export(directive, self.env)
        else:
            self._note(directive, _NOTES.get(name, remedies.UNKNOWN))

    def _note(self, directive: Directive, message: str) -> None:
        self.notes.append(Note(directive.line, directive.raw, message))

    def _number(self, name: str, directive: Directive) -> None:
        value = directive.value
        if name in _MEMORIES:
            number = slurm_memory(value)
            if number == 0:
                self._note(directive, "all the memory of a node is not carried over: set it in spec.trainer.resources")
                return
        elif name in _GPUS:
            number = self._gpus(name, directive)
            if number is None:
                return
        else:
            match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})", value)
            number = int(match[2]) if match else None
            if match and match[1] and match[1] != match[2]:
                self._note(directive, f"a job has a fixed size: the maximum, {number}, is used")
        if not number:
            self._note(directive, "not a valid number: it is left out")
        else:
            self.numbers[name] = number

    def _gpus(self, name: str, directive: Directive) -> int | None:
        """The number in 4, a100:4, gpu:4 or gpu:a100:4; None if there is no GPU."""
        gpus: int | None = None
        for item in directive.value.split(","):
            parts = item.partition("(")[0].split(":")
            if name == "gres" and parts.pop(0) != "gpu":
                self._note(directive, f"{item} is not carried over: request other devices in spec.trainer.resources")
                continue
            count = parts.pop() if parts and parts[-1].isdecimal() else "1"
            gpus = (gpus or 0) + int(count[:9])
            if parts:
                self._note(
                    directive,
                    f"the GPU type {parts[0]} is not carried over: choose it with nodeSelector of spec.template, "
                    "for example by the label nvidia.com/gpu.product",
                )
        return gpus


def slurm_allocation(given: Sequence[Directive]) -> tuple[Allocation, list[Note]]:
    """What the directives ask for, and what is not carried over."""
    asked = _Asked()
    for directive in given:
        asked.read(directive)
    number = asked.numbers.get
    nodes, tasks, each = number("nodes"), number("ntasks"), number("ntasks-per-node")
    if nodes is None and tasks and each:
        nodes = math.ceil(tasks / each)
    if each is None and tasks and nodes:
        each = math.ceil(tasks / nodes)
    gpus = _first(number("gpus-per-node"), number("gres"), _times(number("gpus-per-task"), each or 1))
    if gpus is None and nodes and number("gpus"):
        gpus = math.ceil((number("gpus") or 0) / nodes)
    cpus = _first(_times(number("cpus-per-task"), each or 1), _times(number("cpus-per-gpu"), gpus))
    memory = _first(
        number("mem"), _times(number("mem-per-cpu"), cpus or each or 1), _times(number("mem-per-gpu"), gpus)
    )
    return (
        Allocation(
            asked.name,
            nodes,
            Tasks(nodes, each, tasks),
            Resources(cpus, memory, gpus),
            Resources(gpus=number("gpus") if gpus is None else None),
            asked.seconds,
            asked.env,
            _lines(asked.lines),
            asked.written,
        ),
        asked.notes,
    )


def slurm_variables(allocation: Allocation) -> dict[str, str]:
    """The variables that Slurm sets, as far as they follow from the directives."""
    nodes, tasks, each = allocation.nodes, allocation.tasks, allocation.each
    total = tasks.total or (_times(nodes, tasks.per_node) if tasks.per_node else None)
    cpus = each.cpus // (tasks.per_node or 1) if each.cpus else None
    counts = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS": total,
        "SLURM_NPROCS": total,
        "SLURM_NTASKS_PER_NODE": tasks.per_node,
        "SLURM_TASKS_PER_NODE": tasks.per_node if nodes == 1 else None,
        "SLURM_GPUS_ON_NODE": each.gpus,
        "SLURM_GPUS_PER_NODE": each.gpus,
        "SLURM_CPUS_PER_TASK": cpus,
    }
    known = {name: str(count) for name, count in counts.items() if count is not None}
    return {**known, **({"SLURM_JOB_NAME": allocation.name} if allocation.name else {}), **allocation.env}


def _lines(lines: Mapping[str, int]) -> dict[str, int]:
    """The line of each amount, by its name in PBS."""
    names = {
        "job-name": "name",
        "time": "walltime",
        "cpus-per-task": "ncpus",
        "mem-per-cpu": "mem",
        **dict.fromkeys(_GPUS, "ngpus"),
    }
    return {names.get(name, name): line for name, line in lines.items()}


def _export(directive: Directive, env: dict[str, str]) -> Iterator[Note]:
    for item in directive.value.split(","):
        name, equals, value = item.partition("=")
        if is_reserved_env(name):
            yield Note(directive.line, directive.raw, f"not needed: the launcher sets {name}")
        elif equals:
            env[name] = value
        elif item not in ("NONE", "NIL"):
            yield Note(
                directive.line,
                directive.raw,
                f"{item} is not carried over: pods do not see your environment; set it in spec.trainer.env",
            )


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _times(number: int | None, factor: int | None) -> int | None:
    return None if number is None or factor is None else number * factor
