"""The options of torchrun, of `python -m torch.distributed.run` and of `python -m torch.distributed.launch`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ddpjob.convert.launch import AUTO, LAUNCH, TORCHRUN, Launch, RefusedError
from ddpjob.convert.notes import Note, short
from ddpjob.convert.options import Given, Line, Option, OptionError, Options
from ddpjob.convert.variables import Text

_LOWEST_PORT: Final = 1024
_HIGHEST_PORT: Final = 65535

_PROCESS_KINDS: Final = ("gpu", "xpu", "cpu", AUTO)
_CONF_KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TIMEOUTS: Final = ("join_timeout", "timeout")
_SHORTEST_TIMEOUT: Final = 10
_RANGE: Final = re.compile(r"(\d{1,9})(?::(\d{1,9}))?")

_OPTIONS: Final = (
    Option(("--nnodes",)),
    Option(("--nproc-per-node",)),
    Option(("--node-rank",)),
    Option(("--rdzv-backend",)),
    Option(("--rdzv-endpoint",)),
    Option(("--rdzv-id",)),
    Option(("--rdzv-conf",)),
    Option(("--standalone",), values=0),
    Option(("--max-restarts",)),
    Option(("--monitor-interval",)),
    Option(("--start-method",)),
    Option(("--event-log-handler",)),
    Option(("--role",)),
    Option(("-m", "--module"), values=0),
    Option(("--no-python",), values=0),
    Option(("--run-path",), values=0),
    Option(("--log-dir",)),
    Option(("-r", "--redirects")),
    Option(("-t", "--tee")),
    Option(("--local-ranks-filter",)),
    Option(("--duplicate-stdout-filters",)),
    Option(("--duplicate-stderr-filters",)),
    Option(("--master-addr",)),
    Option(("--master-port",)),
    Option(("--local-addr",)),
    Option(("--logs-specs",)),
    Option(("--numa-binding",)),
    Option(("--signals-to-handle",)),
    Option(("--virtual-local-rank",), values=0),
    Option(("--shutdown-timeout",)),
)
_TORCHRUN: Final = Options("torchrun", _OPTIONS)
_LAUNCH: Final = Options("torch.distributed.launch", (*_OPTIONS, Option(("--use-env",), values=0)))

_LOG: Final = "ddpjob logs and kubectl logs show the output of every pod"
_NOTES: Final[Mapping[str, str]] = {
    "node-rank": "not needed: the ordinal of a pod is the rank of its node",
    "rdzv-id": "not needed: every attempt of the job gets its own ID",
    "local-addr": "not needed: every pod is reached by its own name",
    "monitor-interval": "not carried over: torchrun's default is used",
    "start-method": "not carried over: torchrun's default is used",
    "event-log-handler": "not carried over: the job's conditions and events report what happens (ddpjob why)",
    "role": "not carried over: it only names the workers in torchrun's log; ddpjob logs shows the ranks",
    "run-path": "not carried over: the script is started as a program",
    "log-dir": f"not carried over: {_LOG}",
    "redirects": f"not carried over: {_LOG}",
    "tee": f"not carried over: {_LOG}",
    "local-ranks-filter": f"not carried over: {_LOG}",
    "duplicate-stdout-filters": f"not carried over: {_LOG}",
    "duplicate-stderr-filters": f"not carried over: {_LOG}",
    "logs-specs": f"not carried over: {_LOG}",
    "numa-binding": "not carried over: the kubelet pins containers with whole CPUs if its CPU manager policy is static",
    "signals-to-handle": "not carried over: a pod is stopped with SIGTERM and has spec.gracePeriodSeconds to exit",
    "virtual-local-rank": "not carried over: LOCAL_RANK counts the processes of a node",
    "shutdown-timeout": "not carried over: spec.gracePeriodSeconds limits the time to stop",
}


@dataclass(slots=True)
class _Fields:
    """What the options ask for."""

    nodes: int | None = 1
    nodes_option: str = ""
    processes: int | str = 1
    for_gpus: bool = False
    for_cpus: bool = False
    backend: str = ""
    port: int | None = None
    timeout_seconds: int | None = None
    conf: dict[str, str] = field(default_factory=dict)
    max_restarts: int | None = None
    lines: dict[str, int] = field(default_factory=dict)


def torchrun_launch(words: Sequence[Text], raw: str, *, launcher: str = TORCHRUN) -> Launch:
    """What a launch line of torchrun, or of torch.distributed.launch, asks for.

    Args:
        words: the launcher's name, then its options, program and arguments.
        raw: the whole line as it is written.
        launcher: which of the two.

    Raises:
        RefusedError: an option is unknown, or it does not start a Python program.
    """
    first = words[0].line
    try:
        line = (_LAUNCH if launcher == LAUNCH else _TORCHRUN).read(words[1:])
    except OptionError as error:
        raise RefusedError(first, launcher, str(error), "torchrun --help lists its options") from error
    if not line.rest:
        raise RefusedError(first, "spec.trainer.script", f"{launcher} has no program: add train.py")
    fields = _Fields()
    notes = [*_fixed_notes(line), *_nodes(line, fields), *_processes(line, fields), *_rendezvous(line, fields)]
    notes += [*_restarts(line, fields), *_assumed(line)]
    program = line.rest[0]
    node_rank, processes = line.last("node-rank"), line.last("nproc-per-node")
    return Launch(
        line=first,
        raw=raw,
        launcher=_kind(line, launcher),
        program=program,
        is_module=_is_module(line, program, fields),
        args=line.rest[1:],
        nodes=fields.nodes,
        nodes_option=fields.nodes_option,
        processes=fields.processes,
        processes_option=processes.raw if processes else "",
        for_gpus=fields.for_gpus,
        for_cpus=fields.for_cpus,
        node_rank=node_rank.value if node_rank else "",
        rendezvous_backend=fields.backend,
        port=fields.port,
        timeout_seconds=fields.timeout_seconds,
        conf=fields.conf,
        max_process_restarts=fields.max_restarts,
        lines=fields.lines,
        notes=tuple(notes),
    )


def _kind(line: Line, launcher: str) -> str:
    """torch.distributed.launch is torchrun except for the argument --local-rank, which --use-env omits."""
    return TORCHRUN if launcher == LAUNCH and line.last("use-env") else launcher


def _is_module(line: Line, program: Text, fields: _Fields) -> bool:
    bare = line.last("no-python")
    if bare is not None and not program.text.endswith(".py"):
        raise RefusedError(
            bare.line,
            "spec.trainer.script",
            f"{bare.raw}: {program.text} is not a Python program, and a DDPJob's launcher starts only Python programs",
            "start it from a Python program, or with spec.trainer.command, which runs once per node",
        )
    module = line.last("module")
    fields.lines["module" if module else "script"] = program.line
    return module is not None


def _fixed_notes(line: Line) -> Iterator[Note]:
    for option in line.options:
        if message := _NOTES.get(option.name):
            yield _note(option, message)
        elif option.name == "no-python":
            yield _note(option, "not carried over: the script is started with Python, as without this option")


def _assumed(line: Line) -> Iterator[Note]:
    for option in line.options:
        for name in option.assumed:
            yield _note(option, f"{name} is not set in the script: its default is used")


def _nodes(line: Line, fields: _Fields) -> Iterator[Note]:
    if standalone := line.last("standalone"):
        fields.lines["nodes"] = standalone.line
        if nodes := line.last("nnodes"):
            yield _note(nodes, f"not carried over: {standalone.raw} means one node")
        for option in line.options:
            if option.name in ("rdzv-endpoint", "rdzv-backend"):
                yield _note(option, f"not needed: {standalone.raw} means one node, whose processes find each other")
        return
    nodes = line.last("nnodes")
    if nodes is None:
        return
    fields.lines["nodes"] = nodes.line
    match = _RANGE.fullmatch(nodes.value)
    if match is None:
        if not nodes.unknown:
            raise RefusedError(nodes.line, "spec.nodes", f"{nodes.raw}: must be a number or MIN:MAX")
        fields.nodes, fields.nodes_option = None, nodes.raw
        return
    fields.nodes = int(match[2] or match[1])
    if fields.nodes < 1:
        raise RefusedError(nodes.line, "spec.nodes", f"{nodes.raw}: a job has at least 1 node")
    if match[2] and match[1] != match[2]:
        yield _note(
            nodes, f"a job has a fixed size: spec.nodes is the maximum, {fields.nodes}, and all nodes must be up"
        )


def _processes(line: Line, fields: _Fields) -> Iterator[Note]:
    option = line.last("nproc-per-node")
    if option is None:
        return
    fields.lines["processes"] = option.line
    if option.value.isdecimal() and len(option.value) <= len("256"):
        fields.processes = int(option.value)
        return
    fields.processes = AUTO
    if option.unknown:
        yield _note(
            option,
            f"{_known(option)}: spec.procsPerNode is auto (the GPUs of a node, else its CPUs): set it to the number",
        )
        return
    if option.value not in _PROCESS_KINDS:
        raise RefusedError(option.line, "spec.procsPerNode", f"{option.raw}: must be a number, auto, gpu or cpu")
    fields.for_gpus = option.value in ("gpu", "xpu")
    fields.for_cpus = option.value == "cpu"


def _rendezvous(line: Line, fields: _Fields) -> Iterator[Note]:
    if backend := line.last("rdzv-backend"):
        if backend.value in ("c10d", "static"):
            if line.last("standalone") is None:
                fields.backend = backend.value
                fields.lines["backend"] = backend.line
        else:
            yield _note(backend, "not carried over: c10d is used instead, which needs no separate server")
    elif line.last("standalone") is None and fields.nodes != 1:
        fields.backend = "static"
        yield Note(
            line.rest[0].line,
            "no --rdzv-backend",
            "torchrun then uses static, and so does spec.rendezvous.backend; with c10d, processes can restart "
            "inside running pods",
        )
    host, port = line.last("master-addr"), line.last("master-port")
    endpoint = line.last("rdzv-endpoint")
    # As in torchrun, an endpoint takes precedence over the address of the master.
    wins = port if endpoint is None else endpoint
    if endpoint is not None and line.last("standalone") is None:
        yield from _endpoint(endpoint, fields, counts=wins is endpoint)
    if host is not None:
        yield _note(host, f"not needed: the pod of node 0 replaces {short(host.value)}")
    if port is not None and line.last("standalone") is None:
        yield from _port(port, port.value, fields, counts=wins is port)
    if conf := line.last("rdzv-conf"):
        yield from _conf(conf, fields)


def _endpoint(option: Given, fields: _Fields, *, counts: bool) -> Iterator[Note]:
    host, port = split_endpoint(option.value)
    carried = counts and port_fits(port)
    kept = "; its port is carried over" if carried else ""
    yield _note(option, f"the pod of node 0 replaces {short(host)}{kept}")
    if port:
        yield from _port(option, port, fields, counts=counts)


def split_endpoint(text: str) -> tuple[str, str]:
    """Host and port of HOST, HOST:PORT or [IPV6]:PORT; the port is empty if there is none."""
    bracketed = re.fullmatch(r"(\[[^\]]*\])(?::(.*))?", text)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    host, colon, port = text.rpartition(":")
    # In an IPv6 address without brackets, a port cannot be recognised.
    return (host, port) if colon and ":" not in host else (text, "")


def port_fits(text: str) -> bool:
    """Whether a text is a port that spec.rendezvous accepts."""
    return text.isdecimal() and len(text) <= len("65535") and _LOWEST_PORT <= int(text) <= _HIGHEST_PORT


def _port(option: Given, text: str, fields: _Fields, *, counts: bool) -> Iterator[Note]:
    if not counts:
        yield _note(option, f"port {text} is not carried over: torchrun uses the other one here")
    elif port_fits(text):
        fields.port = int(text)
        fields.lines["port"] = option.line
    elif option.unknown and not text.isdecimal():
        yield _note(option, f"{_known(option)}: spec.rendezvous.port keeps its default, which suits every job")
    elif text == "0":
        yield _note(
            option, "port 0 means any free port: spec.rendezvous.port keeps its default, which is free in every pod"
        )
    else:
        yield _note(
            option,
            f"{text} is not a port from {_LOWEST_PORT} to {_HIGHEST_PORT}: spec.rendezvous.port keeps its default",
        )


def _conf(option: Given, fields: _Fields) -> Iterator[Note]:
    if option.unknown:
        yield _note(option, f"{_known(option)}: not carried over; set it in spec.rendezvous.conf")
        return
    fields.lines["conf"] = option.line
    for item in filter(None, option.value.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key == "is_host":
            yield _note(option, "is_host is not carried over: the pod of node 0 hosts the store")
        elif key in _TIMEOUTS and value.isdecimal() and int(value) >= _SHORTEST_TIMEOUT:
            fields.timeout_seconds = int(value)
        elif equals and _CONF_KEY.fullmatch(key) and key not in _TIMEOUTS:
            fields.conf[key] = value
        else:
            yield _note(option, f"{item} is not carried over: spec.rendezvous.conf does not accept it")


def _restarts(line: Line, fields: _Fields) -> Iterator[Note]:
    option = line.last("max-restarts")
    if option is None:
        return
    if not option.value.isdecimal():
        yield _note(option, "not a number: spec.restart.maxProcessRestarts keeps its default")
    elif fields.backend == "static" and int(option.value):
        yield _note(
            option,
            "not carried over: a static rendezvous cannot restart processes inside running pods; "
            "spec.restart.maxRestarts restarts all pods instead",
        )
    else:
        fields.max_restarts = int(option.value)
        fields.lines["restarts"] = option.line


def _known(option: Given) -> str:
    return f"{', '.join(option.unknown)} is not known from the script"


def _note(option: Given, message: str) -> Note:
    return Note(option.line, option.raw, message)
