"""The options of Open MPI's mpirun, with those of other mpiexecs that mean the same."""

import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ddpjob.convert.launch import MPIRUN, Launch, RefusedError
from ddpjob.convert.notes import Note
from ddpjob.convert.options import Given, Line, Option, OptionError, Options
from ddpjob.convert.python_line import PythonLine
from ddpjob.convert.torchrun_line import port_fits
from ddpjob.convert.variables import Text
from ddpjob_core.api.constants import is_reserved_env

ReadFile: TypeAlias = Callable[[str], str | None]
"""The content of a file, None where it is not there."""

_TRANSPORT: Final = "not carried over: a setting of this cluster's network; OMPI_MCA_* in spec.trainer.env sets it"
_SSH: Final = "not needed: the job's own hostfile and keys take its place"
_PLACEMENT: Final = "not carried over: every pod gets its processes, on the CPUs that it asks for"
_OUTPUT: Final = "not carried over: every pod has its log: ddpjob logs, kubectl logs"
_FOLDER: Final = "not carried over: spec.trainer.workingDir is the working directory"
_MPI: Final = "not needed: the mpirun of the image is started by the job"

_OPTIONS: Final = (
    Option(("-np", "-n", "-c", "--np", "--n")),
    Option(("-H", "--host", "-host", "--hosts", "-hosts")),
    Option(("--hostfile", "-hostfile", "--machinefile", "-machinefile", "--default-hostfile", "-f")),
    Option(("-x",)),
    Option(("-genv", "-env"), values=2),
    Option(("-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost")),
    Option(("--map-by", "-map-by")),
    Option(("--bind-to", "-bind-to")),
    Option(("--rank-by", "-rank-by")),
    Option(("--mca", "-mca"), values=2),
    Option(("--gmca", "-gmca"), values=2),
    Option(("--prtemca", "--pmixmca"), values=2),
    Option(("--wdir", "-wdir", "--wd", "-wd")),
    Option(("--prefix",)),
    Option(("--path",)),
    Option(("--output-filename", "-output-filename")),
    Option(("--output",)),
    Option(("--timeout",)),
    Option(("--tag-output", "-tag-output", "-l"), values=0),
    Option(("--timestamp-output", "-timestamp-output"), values=0),
    Option(("--report-bindings", "-report-bindings"), values=0),
    Option(("--display-map", "-display-map", "--display-allocation", "-display-allocation"), values=0),
    Option(("--display",)),
    Option(("--allow-run-as-root", "-allow-run-as-root"), values=0),
    Option(("--oversubscribe", "-oversubscribe", "--nooversubscribe", "-nooversubscribe"), values=0),
    Option(("--use-hwthread-cpus", "-use-hwthread-cpus"), values=0),
    Option(("--bynode", "-bynode", "--byslot", "-byslot", "--bind-to-core", "-bind-to-core"), values=0),
    Option(("-v", "--verbose", "-q", "--quiet"), values=0),
)
_READER: Final = Options("mpirun", _OPTIONS)
_TOLD: Final[Mapping[str, str]] = {
    "map-by": _PLACEMENT,
    "bind-to": _PLACEMENT,
    "rank-by": _PLACEMENT,
    "bynode": _PLACEMENT,
    "use-hwthread-cpus": _PLACEMENT,
    "oversubscribe": _PLACEMENT,
    "report-bindings": _PLACEMENT,
    "mca": _TRANSPORT,
    "gmca": _TRANSPORT,
    "prtemca": _TRANSPORT,
    "wdir": _FOLDER,
    "prefix": _MPI,
    "path": _MPI,
    "allow-run-as-root": "not needed: see spec.trainer.securityContext for the user of the processes",
    "output-filename": _OUTPUT,
    "output": _OUTPUT,
    "tag-output": _OUTPUT,
    "timestamp-output": _OUTPUT,
    "display-map": _OUTPUT,
    "display": _OUTPUT,
    "verbose": _OUTPUT,
    "timeout": "not carried over: spec.activeDeadlineSeconds limits the job's time",
}
_PER_NODE: Final = re.compile(r"ppr:(\d{1,3}):node\b.*")


@dataclass(slots=True)
class MpiRequest:
    """What mpirun's own options ask for.

    Attributes:
        program: the words behind the options.
        nodes: None where they do not tell.
        processes: on each node, None where they do not tell.
        total: processes of all nodes.
        port: of the store that the processes meet at.
        env: variables that are given to the program.
    """

    program: tuple[Text, ...]
    nodes: int | None = None
    processes: int | None = None
    total: int | None = None
    port: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def read_mpirun(words: Sequence[Text], read_file: ReadFile, exported: Mapping[str, str]) -> MpiRequest:
    """Take a line of mpirun apart.

    Args:
        words: mpirun, its options, then the program.
        read_file: reads a hostfile.
        exported: variables of the script that `-x NAME` can name.

    Raises:
        RefusedError: there is an option that is not known, or no program.
    """
    try:
        line = _READER.read(words[1:])
    except OptionError as error:
        raise RefusedError(
            words[0].line, "mpirun", str(error), "leave an option out that says nothing about nodes or processes"
        ) from error
    if not line.rest:
        raise RefusedError(words[0].line, "spec.trainer.script", "mpirun is given no program: add python3 train.py")
    request = MpiRequest(line.rest)
    for option in line.options:
        if message := _TOLD.get(option.name):
            if not (option.name == "map-by" and _PER_NODE.fullmatch(option.value)):
                request.notes.append(Note(option.line, option.raw, message))
        elif option.name in ("x", "genv"):
            request.notes += _variable(option, exported, request)
    request.notes += _size(line, read_file, request)
    return request


def _size(line: Line, read_file: ReadFile, request: MpiRequest) -> Iterator[Note]:
    slots: dict[str, int] = {}
    if hosts := line.last("host", "hosts"):
        slots = host_slots(hosts.value.split(","))
        yield Note(hosts.line, hosts.raw, _SSH)
        request.lines["nodes"] = hosts.line
    elif hostfile := line.last("hostfile"):
        content = None if hostfile.unknown else read_file(hostfile.value)
        if content is None:
            yield Note(hostfile.line, hostfile.raw, f"{_SSH}; how many nodes it names cannot be told")
        else:
            slots = hostfile_slots(content)
            yield Note(hostfile.line, hostfile.raw, _SSH)
        request.lines["nodes"] = hostfile.line
    request.nodes = len(slots) or None
    request.total = yield from _number(line.last("np", "n"), request, "processes")
    request.processes = yield from _number(line.last("npernode", "ppn"), request, "processes")
    mapped = line.last("map-by")
    if mapped is not None and (each := _PER_NODE.fullmatch(mapped.value)):
        request.processes = int(each[1])
    if request.total is None and request.processes is None and slots:
        request.total = sum(slots.values())
    if request.nodes is None and request.processes and request.total:
        request.nodes = math.ceil(request.total / request.processes)


def _number(option: Given | None, request: MpiRequest, name: str) -> Generator[Note, None, int | None]:
    """The number that an option gives."""
    if option is None:
        return None
    request.lines[name] = option.line
    if option.value.isdecimal() and int(option.value[:9]):
        return int(option.value[:9])
    if not option.unknown:
        raise RefusedError(option.line, "spec.procsPerNode", f"{option.raw}: this is no number from 1")
    yield Note(option.line, option.raw, f"{', '.join(option.unknown)} is not known from the script")
    return None


def host_slots(hosts: Sequence[str]) -> dict[str, int]:
    """Host to slots of `a:2,b:2`; a host without a number has one slot each time that it is named."""
    slots: dict[str, int] = {}
    for host in filter(None, hosts):
        name, _, count = host.strip().rpartition(":") if re.search(r":\d+$", host) else (host.strip(), "", "1")
        slots[name] = slots.get(name, 0) + int(count)
    return slots


def hostfile_slots(text: str) -> dict[str, int]:
    """Host to slots of a hostfile: `node1 slots=2`, `node1:2`, or a name on a line for each slot."""
    hosts = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            given = re.search(r"\bslots\s*=\s*(\d{1,4})", " ".join(words[1:]))
            hosts.append(f"{words[0]}:{given[1]}" if given else words[0])
    return host_slots(hosts)


def _variable(option: Given, exported: Mapping[str, str], request: MpiRequest) -> Iterator[Note]:
    env = request.env
    text = option.value.replace(" ", "=", 1) if option.name == "genv" else option.value
    name, equals, value = text.partition("=")
    if name == "MASTER_PORT" and port_fits(value):
        request.port = int(value)
        request.lines["port"] = option.line
    elif is_reserved_env(name):
        yield Note(option.line, option.raw, f"not needed: {name} is set by the launcher")
    elif equals and not option.unknown:
        env[name] = value
    elif not equals and name in exported:
        env[name] = exported[name]
    elif equals:
        yield Note(option.line, option.raw, f"not carried over: {', '.join(option.unknown)} is not known")
    else:
        yield Note(option.line, option.raw, f"not carried over: the image's {name} is used; spec.trainer.env sets it")


def mpirun_launch(request: MpiRequest, inner: PythonLine, first: int, raw: str) -> Launch:
    """The launch that a line of mpirun asks for.

    Args:
        request: its own options.
        inner: the Python program that it starts.
        first: number of its first line.
        raw: as it is written.
    """
    program, *args = inner.words
    kind = "module" if inner.is_module else "script"
    return Launch(
        line=first,
        raw=raw,
        launcher=MPIRUN,
        program=program,
        is_module=inner.is_module,
        args=tuple(args),
        nodes=request.nodes,
        processes=request.processes,
        total_processes=request.total,
        port=request.port,
        env={**request.env, **dict(inner.env)},
        lines={**request.lines, kind: program.line},
        notes=(*request.notes, *inner.notes),
    )
