"""The options of Open MPI's mpirun, and of the mpiexec of MPICH (Hydra) and of Cray (PALS)."""

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
"""Returns the content of a file, None if it does not exist."""

_TRANSPORT: Final = "not carried over: it depends on the network; set OMPI_MCA_* in spec.trainer.env if you need it"
_SSH: Final = "not needed: the job has its own hostfile and ssh keys"
_PLACEMENT: Final = "not carried over: every pod runs its processes on the CPUs that it requests"
_OUTPUT: Final = "not carried over: ddpjob logs and kubectl logs show the output of every pod"
_FOLDER: Final = "not carried over: spec.trainer.workingDir sets the working directory"
_ENVIRONMENT: Final = (
    "not needed: the program gets the image's environment, spec.trainer.env, and what the launcher sets"
)
_STARTER: Final = "not needed: the operator starts the pods, and mpirun the processes in them"
_MPI: Final = "not needed: the job starts the image's mpirun"

_OPTIONS: Final = (
    Option(("-np", "-n", "-c", "--np", "--n")),
    Option(("-H", "--host", "-host", "--hosts", "-hosts")),
    Option(("--hostfile", "-hostfile", "--machinefile", "-machinefile", "--default-hostfile", "-f")),
    Option(("-x",)),
    Option(("--env", "-env", "--genv", "-genv", "-e"), pair=True),
    Option(("--envlist", "-envlist", "--genvlist", "-genvlist")),
    Option(
        ("--envall", "-envall", "--envnone", "-envnone", "--genvall", "-genvall", "--genvnone", "-genvnone"), values=0
    ),
    Option(("--depth", "-depth", "-d")),
    Option(("--cpu-bind", "-cpu-bind", "--gpu-bind", "--mem-bind", "-membind", "--cores", "-cores")),
    Option(("--rlimits", "--umask", "--pmi", "--exclude-hosts", "--fanout")),
    Option(("--launcher", "-launcher", "-launcher-exec", "-bootstrap", "-rmk")),
    Option(("--iface", "-iface")),
    Option(
        (
            *("--transfer", "--no-transfer", "--abort-on-failure", "--no-abort-on-failure", "--sstartup"),
            *("--no-sstartup", "--vni", "--no-vni", "--procinfo", "-disable-auto-cleanup"),
        ),
        values=0,
    ),
    Option(("-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost")),
    Option(("--map-by", "-map-by")),
    Option(("--bind-to", "-bind-to")),
    Option(("--rank-by", "-rank-by")),
    Option(("--mca", "-mca"), values=2),
    Option(("--gmca", "-gmca"), values=2),
    Option(("--prtemca", "--pmixmca"), values=2),
    Option(("--wdir", "-wdir", "--wd", "-wd", "--workdir", "--cwd")),
    Option(("--prefix",)),
    Option(("--path",)),
    Option(("--output-filename", "-output-filename")),
    Option(("--output",)),
    Option(("--timeout",)),
    Option(("--tag-output", "-tag-output", "-l", "--label", "-prepend-rank", "--line-buffer"), values=0),
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
_NOTES: Final[Mapping[str, str]] = {
    "map-by": _PLACEMENT,
    "bind-to": _PLACEMENT,
    "rank-by": _PLACEMENT,
    "bynode": _PLACEMENT,
    "use-hwthread-cpus": _PLACEMENT,
    "oversubscribe": _PLACEMENT,
    "report-bindings": _PLACEMENT,
    "cpu-bind": _PLACEMENT,
    "depth": "not carried over: processors per process are spec.trainer.resources divided by spec.procsPerNode",
    "envlist": _ENVIRONMENT,
    "envall": _ENVIRONMENT,
    "rlimits": _STARTER,
    "launcher": _STARTER,
    "transfer": _STARTER,
    "iface": _TRANSPORT,
    "mca": _TRANSPORT,
    "gmca": _TRANSPORT,
    "prtemca": _TRANSPORT,
    "wdir": _FOLDER,
    "prefix": _MPI,
    "path": _MPI,
    "allow-run-as-root": "not needed: spec.trainer.securityContext sets the user of the processes",
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
        program: the words after the options.
        nodes: None if they do not say.
        processes: per node, None if they do not say.
        total: processes of all nodes.
        port: of the store at which the processes meet.
        env: variables that the program gets.
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
    """Read a line of mpirun.

    Args:
        words: mpirun, its options, then the program.
        read_file: reads a hostfile.
        exported: variables of the script that `-x NAME` can refer to.

    Raises:
        RefusedError: an option is unknown, or there is no program.
    """
    try:
        line = _READER.read(words[1:])
    except OptionError as error:
        raise RefusedError(
            words[0].line, "mpirun", str(error), "remove the option if it says nothing about nodes or processes"
        ) from error
    if not line.rest:
        raise RefusedError(words[0].line, "spec.trainer.script", "mpirun has no program: add python3 train.py")
    request = MpiRequest(line.rest)
    for option in line.options:
        if message := _NOTES.get(option.name):
            if not (option.name == "map-by" and _PER_NODE.fullmatch(option.value)):
                request.notes.append(Note(option.line, option.raw, message))
        elif option.name in ("x", "env"):
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
            yield Note(hostfile.line, hostfile.raw, f"{_SSH}; the number of nodes in it is not known")
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
        raise RefusedError(option.line, "spec.procsPerNode", f"{option.raw}: must be a number of at least 1")
    yield Note(option.line, option.raw, f"{', '.join(option.unknown)} is not known from the script")
    return None


def host_slots(hosts: Sequence[str]) -> dict[str, int]:
    """Slots by host of `a:2,b:2`; a host without a number has one slot per occurrence."""
    slots: dict[str, int] = {}
    for host in filter(None, hosts):
        name, _, count = host.strip().rpartition(":") if re.search(r":\d+$", host) else (host.strip(), "", "1")
        slots[name] = slots.get(name, 0) + int(count)
    return slots


def hostfile_slots(text: str) -> dict[str, int]:
    """Slots by host of a hostfile: `node1 slots=2`, `node1:2`, or one line per slot."""
    hosts = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            given = re.search(r"\bslots\s*=\s*(\d{1,4})", " ".join(words[1:]))
            hosts.append(f"{words[0]}:{given[1]}" if given else words[0])
    return host_slots(hosts)


def _variable(option: Given, exported: Mapping[str, str], request: MpiRequest) -> Iterator[Note]:
    env = request.env
    name, equals, value = option.value.partition("=")
    if name == "MASTER_PORT" and port_fits(value):
        request.port = int(value)
        request.lines["port"] = option.line
    elif is_reserved_env(name):
        yield Note(option.line, option.raw, f"not needed: the launcher sets {name}")
    elif equals and not option.unknown:
        env[name] = value
    elif not equals and name in exported:
        env[name] = exported[name]
    elif equals:
        yield Note(option.line, option.raw, f"not carried over: {', '.join(option.unknown)} is not known")
    else:
        yield Note(
            option.line,
            option.raw,
            f"not carried over: the image's {name} is used; set it in spec.trainer.env to change it",
        )


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
