"""Launch lines, and what was asked of a scheduler for them, as DDPJobs."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ddpjob.convert.launch import AUTO, MPIRUN, PYTHON, TORCHRUN, Launch, RefusedError
from ddpjob.convert.notes import Note, short
from ddpjob.convert.resources import Allocation, Resources
from ddpjob.convert.script import Reading
from ddpjob.convert.variables import Text
from ddpjob.manifests.documents import Document, Path, checked_job
from ddpjob.manifests.program import job_label, stem_of
from ddpjob_core.api.constants import API_VERSION, KIND, MAX_PROCESSES
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.spec import Backend, Metrics

_BACKEND: Final = re.compile(r"--(?:dist[-_])?backend(?:=(.*))?")
_BACKENDS: Final = ("gloo", "nccl", "mpi")
_DEVICES: Final = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
_RANK: Final = "the program finds it in the environment as RANK"
_LOCAL_RANK: Final = "the program finds it in the environment as LOCAL_RANK"
_NODE_RANK: Final = "the program finds it in the environment as DDPJOB_NODE_RANK"
_SIZE: Final = "the program finds it in the environment as WORLD_SIZE"
_ID: Final = "the program finds a value of its own for each job in the environment as DDPJOB_UID"
_IN_THE_POD: Final[Mapping[str, str]] = {
    "SLURM_PROCID": _RANK,
    "OMPI_COMM_WORLD_RANK": _RANK,
    "SLURM_LOCALID": _LOCAL_RANK,
    "OMPI_COMM_WORLD_LOCAL_RANK": _LOCAL_RANK,
    "SLURM_NODEID": _NODE_RANK,
    "PBS_NODEID": _NODE_RANK,
    "PBS_NODENUM": _NODE_RANK,
    "PBS_VNODENUM": _NODE_RANK,
    "SLURM_NTASKS": _SIZE,
    "WORLD_SIZE": _SIZE,
    "SLURM_JOB_ID": _ID,
    "SLURM_JOBID": _ID,
    "PBS_JOBID": _ID,
    "MASTER_ADDR": "the program finds it in the environment",
    "MASTER_PORT": "the program finds it in the environment",
}
_PATHS: Final[Mapping[str, Path]] = {
    "nodes": ("spec", "nodes"),
    "processes": ("spec", "procsPerNode"),
    "backend": ("spec", "rendezvous", "backend"),
    "port": ("spec", "rendezvous", "port"),
    "conf": ("spec", "rendezvous", "conf"),
    "restarts": ("spec", "restart", "maxProcessRestarts"),
    "script": ("spec", "trainer", "script"),
    "module": ("spec", "trainer", "module"),
    "name": ("metadata", "name"),
    "walltime": ("spec", "activeDeadlineSeconds"),
    "ncpus": ("spec", "trainer", "resources"),
}


@dataclass(frozen=True, slots=True)
class Supported:
    """What this version of the API knows."""

    launchers: frozenset[str] = frozenset(launcher.value for launcher in Launcher)
    backends: frozenset[str] = frozenset(backend.value for backend in Backend)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user adds to a script.

    Attributes:
        source: name of the script, for messages.
        image: of the pods.
        name: of the job; that of the script when left out.
        gpus: of each node; what the script asks for when left out.
        namespace: None to leave it open.
    """

    source: str
    image: str
    name: str | None = None
    gpus: int | None = None
    namespace: str | None = None
    supported: Supported = Supported()


@dataclass(frozen=True, slots=True)
class Converted:
    """Jobs, each a manifest that has been checked, and what was not carried over to them."""

    documents: tuple[Document, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A launch whose size is settled."""

    launch: Launch
    nodes: int
    notes: tuple[Note, ...] = ()


def jobs_of(reading: Reading, allocation: Allocation, notes: Sequence[Note], settings: Settings) -> Converted:
    """A DDPJob for each launch line.

    Args:
        reading: what was found in the script.
        allocation: what the scheduler was asked for.
        notes: of its directives.
        settings: what the user adds.

    Raises:
        UsageProblem: no job can be made; every reason is told with its line and field.
    """
    launches, told = _merged(reading.launches)
    refused = list(reading.refused)
    plans: list[_Plan] = []
    for launch in launches:
        try:
            plans.append(_plan(launch, allocation, settings))
        except RefusedError as error:
            refused.append(error)
    _require_some(plans, refused, settings.source)
    shared = allocation.nodes or max(plan.nodes for plan in plans)
    each = allocation.each.over(allocation.total.shared_by(shared))
    each = replace(each, gpus=settings.gpus if settings.gpus is not None else each.gpus)
    told += [*notes, *reading.notes, *_shares(allocation, each, shared)]
    told += [Note(error.line, error.field, f"no job is made of this line: {error}") for error in refused]
    names, about_names = _names([plan.launch for plan in plans], allocation, settings)
    told += about_names
    documents = []
    for plan, name in zip(plans, names, strict=True):
        builder = _Builder(plan, allocation, each, settings)
        documents.append(checked_job([builder.document(name)]))
        told += builder.notes
    told += _in_order(documents, plans)
    return Converted(tuple(documents), tuple(sorted(dict.fromkeys(told), key=lambda note: note.line)))


def _require_some(plans: Sequence[_Plan], refused: Sequence[RefusedError], source: str) -> None:
    if plans:
        return
    if refused:
        reasons = "\n".join(f"{source}:{error.line}: {error.field}: {error}" for error in refused)
        raise UsageProblem(reasons, next((error.remedy for error in refused if error.remedy), ""))
    raise UsageProblem(
        f"{source}: no launch line is found: none begins with torchrun, python, srun or mpirun",
        "give a line such as: torchrun --nnodes=2 --nproc-per-node=4 train.py",
    )


def _merged(launches: Sequence[Launch]) -> tuple[list[Launch], list[Note]]:
    """The launches without those that start the further nodes of one before."""
    found: dict[object, Launch] = {}
    notes = []
    for launch in launches:
        same = (
            launch.launcher,
            launch.program.text,
            tuple(arg.text for arg in launch.args),
            launch.nodes,
            launch.nodes_said,
            launch.processes,
            launch.rendezvous_backend,
            launch.port,
        )
        first = found.get(same)
        if first is None or not (launch.node_rank and first.node_rank):
            found[same if first is None else (*same, launch.line)] = launch
        else:
            message = f"the same launch as in line {first.line}, for another node: one job starts all nodes"
            notes.append(Note(launch.line, launch.raw, message))
    return list(found.values()), notes


def _plan(launch: Launch, allocation: Allocation, settings: Settings) -> _Plan:
    known = settings.supported.launchers
    if launch.launcher not in known:
        raise RefusedError(
            launch.line,
            "spec.launcher",
            f"{short(launch.raw)}: this version of ddpjob has no launcher {launch.launcher}, "
            f"only {', '.join(sorted(known))}",
            "torchrun starts every program that reads RANK, WORLD_SIZE and LOCAL_RANK from its environment",
        )
    if launch.nodes is not None:
        notes = () if allocation.nodes in (None, launch.nodes) else (_other_size(launch, allocation),)
        return _Plan(launch, launch.nodes, notes)
    if allocation.nodes is not None:
        return _Plan(launch, allocation.nodes)
    if launch.nodes_said:
        raise RefusedError(
            launch.lines.get("nodes", launch.line),
            "spec.nodes",
            f"{launch.nodes_said}: the number of nodes is not known from the script",
            "write the number there",
        )
    if launch.launcher == MPIRUN and "nodes" in launch.lines:
        return _Plan(launch, 1, (Note(launch.line, launch.raw, "spec.nodes is 1: write the number of nodes there"),))
    return _Plan(launch, 1)


def _other_size(launch: Launch, allocation: Allocation) -> Note:
    asked = f"{allocation.nodes} node{'s' * (allocation.nodes != 1)}"
    return Note(launch.line, launch.raw, f"the script asks for {asked}, this line uses {launch.nodes}: so does the job")


def _shares(allocation: Allocation, each: Resources, nodes: int) -> Iterator[Note]:
    """What becomes of amounts that were given for all nodes together."""
    if allocation.nodes is not None or nodes == 1:
        return
    limits = each.limits()
    total = allocation.total.limits()
    for name, key in (("ncpus", "cpu"), ("ngpus", "nvidia.com/gpu"), ("mem", "memory")):
        if key in total and key in limits and name in allocation.written:
            message = f"this is for all {nodes} nodes together: each gets {limits[key]}"
            yield Note(allocation.lines[name], allocation.written[name], message)


def _names(launches: Sequence[Launch], allocation: Allocation, settings: Settings) -> tuple[list[str], Sequence[Note]]:
    given = settings.name or allocation.name
    notes = []
    bases = [given or stem_of(launch.program.text) for launch in launches]
    counts = Counter(job_label(base) for base in bases)
    names = []
    for number, base in enumerate(bases, 1):
        suffix = f"-{number}" if counts[job_label(base)] > 1 else ""
        # A name that the user gives to this command is taken as it is, right or wrong.
        names.append(settings.name if settings.name and not suffix else job_label(base, suffix))
    if allocation.name and not settings.name and allocation.name not in names:
        line = allocation.lines.get("name", 1)
        notes.append(Note(line, allocation.name, f"the name is {', '.join(names)}: names are DNS labels, one a job"))
    return names, notes


def _in_order(documents: Sequence[Document], plans: Sequence[_Plan]) -> Iterator[Note]:
    if len(documents) == 1:
        return
    names = [document.name for document in documents]
    commands = " && ".join(f"ddpjob run -f {name}.yaml" for name in names)
    yield Note(
        plans[-1].launch.line,
        f"{len(names)} launch lines",
        f"{len(names)} jobs, which run at the same time when they are applied together. To run them in order, keep "
        f"each in a file of its own: {commands}; or wait between them: kubectl wait --for=condition=Succeeded "
        f"--timeout=-1s ddpjob/{names[0]}",
    )


class _Builder:
    """Makes one job, and notes what of its launch is left out."""

    def __init__(self, plan: _Plan, allocation: Allocation, each: Resources, settings: Settings) -> None:
        self._plan = plan
        self._launch = plan.launch
        self._allocation = allocation
        self._each = each
        self._settings = settings
        self.notes = [*plan.launch.notes, *plan.notes]

    def document(self, name: str) -> Document:
        """The job."""
        launch = self._launch
        processes = self._processes()
        spec: dict[str, Any] = {"nodes": self._plan.nodes, "procsPerNode": processes}
        if launch.launcher != TORCHRUN:
            spec["launcher"] = launch.launcher
        if rendezvous := self._rendezvous(processes):
            spec["rendezvous"] = rendezvous
        if backend := self._backend():
            spec["backend"] = backend
        if launch.max_process_restarts is not None:
            spec["restart"] = {"maxProcessRestarts": launch.max_process_restarts}
        if self._allocation.seconds:
            spec["activeDeadlineSeconds"] = self._allocation.seconds
        spec["trainer"] = self._trainer()
        namespace = self._settings.namespace
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        lines = {**self._allocation.lines, **launch.lines}
        if self._settings.name:
            lines.pop("name", None)
        places: dict[Path, int] = {(): launch.line}
        places |= {_PATHS[field]: line for field, line in lines.items() if field in _PATHS}
        content = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        return Document(self._settings.source, content, places)

    def _note(self, line: int, text: str, message: str) -> None:
        self.notes.append(Note(line, text, message))

    def _processes(self) -> int | str:
        launch = self._launch
        line = launch.lines.get("processes", launch.line)
        if launch.for_gpus:
            if self._each.gpus:
                return self._each.gpus
            self._note(line, launch.processes_said, "spec.procsPerNode is auto: give --gpus N, the GPUs of a node")
            return AUTO
        if launch.for_cpus:
            if self._each.cpus:
                return self._each.cpus
            self._note(
                line, launch.processes_said, "spec.procsPerNode is auto: the CPUs in spec.trainer.resources count"
            )
            return AUTO
        if launch.launcher == PYTHON:
            self._note(
                launch.line,
                launch.raw,
                "one process a node: if the program spawns its own, write their number into spec.procsPerNode",
            )
        if launch.processes is not None:
            return launch.processes
        return self._even_share(line)

    def _even_share(self, line: int) -> int:
        """The processes of a node where the line tells those of all nodes."""
        launch, nodes = self._launch, self._plan.nodes
        if launch.total_processes is None:
            asked = self._allocation.tasks.per_node
            return asked if asked is not None and launch.launcher == MPIRUN else 1
        each = math.ceil(launch.total_processes / nodes)
        if each * nodes != launch.total_processes:
            self._note(
                line,
                f"{launch.total_processes} processes on {nodes} nodes",
                f"every node has the same number: spec.procsPerNode is {each}, {each * nodes} in all",
            )
        return each

    def _rendezvous(self, processes: int | str) -> dict[str, Any]:
        launch = self._launch
        found: dict[str, Any] = {}
        if launch.rendezvous_backend:
            found["backend"] = launch.rendezvous_backend
        if launch.port is not None:
            first = Metrics().port
            if first <= launch.port < first + (processes if isinstance(processes, int) else MAX_PROCESSES):
                self._note(
                    launch.lines.get("port", launch.line),
                    f"port {launch.port}",
                    "not carried over: the processes' metrics are served there; spec.rendezvous.port is the default",
                )
            else:
                found["port"] = launch.port
        if launch.timeout_seconds is not None:
            found["timeoutSeconds"] = launch.timeout_seconds
        if launch.conf:
            found["conf"] = dict(launch.conf)
        return found

    def _backend(self) -> str:
        """What the program is told by an argument of its own, for what reads it from the environment."""
        backend = ""
        words = self._launch.args
        for index, word in enumerate(words):
            if match := _BACKEND.fullmatch(word.text):
                following = words[index + 1].text if index + 1 < len(words) else ""
                backend = following if match[1] is None else match[1]
        if backend not in _BACKENDS:
            return ""
        if backend == "mpi" and self._launch.launcher != MPIRUN:
            message = "the program is given this argument; MPI gives ranks under mpirun alone: spec.backend is left out"
            self._note(words[0].line, "--backend mpi", message)
            return ""
        if backend in self._settings.supported.backends:
            return backend
        self._note(
            words[0].line,
            f"--backend {backend}",
            f"the program is given this argument; spec.backend of this version has no {backend}, and is left out",
        )
        return ""

    def _trainer(self) -> dict[str, Any]:
        launch = self._launch
        found: dict[str, Any] = {"image": self._settings.image}
        found["module" if launch.is_module else "script"] = launch.program.text
        where = (
            "the image has to hold this module"
            if launch.is_module
            else "the image, or a volume of spec.template, has to hold this file there"
        )
        relative = launch.is_module or not launch.program.text.startswith("/")
        self._note(
            launch.program.line,
            launch.program.raw,
            f"{where}{'; relative to spec.trainer.workingDir' if relative else ''}",
        )
        for word in (launch.program, *launch.args):
            self._unknown(word)
        if launch.args:
            found["args"] = [word.text for word in launch.args]
        env = {**self._allocation.env, **launch.env}
        for name in sorted(_DEVICES & env.keys()):
            message = "not carried over: a pod sees the GPUs that it asks for, and no others"
            self._note(launch.line, f"{name}={env.pop(name)}", message)
        if env:
            found["env"] = [{"name": name, "value": value} for name, value in env.items()]
        if limits := self._each.limits():
            found["resources"] = {"limits": limits}
        elif self._each.gpus is None and not launch.for_gpus:
            self._note(launch.line, launch.raw, "no GPUs are asked for: give --gpus N if the program uses them")
        return found

    def _unknown(self, word: Text) -> None:
        for name in word.assumed:
            self._note(word.line, word.raw, f"{name} is not set in the script: its default is taken")
        for name in word.unknown:
            if place := _IN_THE_POD.get(name):
                self._note(word.line, word.raw, f"{name} is left as it is: {place}")
            elif name.startswith("<"):
                self._note(word.line, word.raw, f"{name} is left as it is: write what it stands for")
            else:
                shown = f"${name}" if name.isidentifier() else name
                message = f"{shown} is not known from the script and is left as it is: write what it stands for"
                self._note(word.line, word.raw, message)
