"""One launch line, and the resources requested for it from a scheduler, as a DDPJob."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ddpjob.convert.launch import AUTO, MPIRUN, PYTHON, TORCHRUN, Launch
from ddpjob.convert.notes import Note
from ddpjob.convert.resources import Allocation, Resources
from ddpjob.convert.variables import Text
from ddpjob.manifests.documents import Document, Path
from ddpjob_core.api.constants import API_VERSION, KIND, MAX_PROCESSES
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.spec import Backend, Metrics

_BACKEND: Final = re.compile(r"--(?:dist[-_])?backend(?:=(.*))?")
_BACKENDS: Final = ("gloo", "nccl", "mpi")
_DEVICES: Final = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
_RANK: Final = "the program finds it in the environment as RANK"
_LOCAL_RANK: Final = "the program finds it in the environment as LOCAL_RANK"
_NODE_RANK: Final = "the program finds it in the environment as DDPJOB_NODE_RANK"
_SIZE: Final = "the program finds it in the environment as WORLD_SIZE"
_ID: Final = "the program finds the job's unique ID in the environment as DDPJOB_UID"
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
    """What this version of the API supports."""

    launchers: frozenset[str] = frozenset(launcher.value for launcher in Launcher)
    backends: frozenset[str] = frozenset(backend.value for backend in Backend)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user adds on the command line.

    Attributes:
        source: name of the script, for messages.
        image: of the pods.
        name: of the job; None for the name of the script.
        gpus: per node; None for what the script requests.
        namespace: None to write none.
    """

    source: str
    image: str
    name: str | None = None
    gpus: int | None = None
    namespace: str | None = None
    supported: Supported = Supported()


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch whose number of nodes is known."""

    launch: Launch
    nodes: int
    notes: tuple[Note, ...] = ()


class Builder:
    """Builds one job, and notes which parts of its launch are left out."""

    def __init__(self, plan: Plan, allocation: Allocation, each: Resources, settings: Settings) -> None:
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
            self._note(
                line, launch.processes_option, "spec.procsPerNode is auto: pass --gpus N, the number of GPUs per node"
            )
            return AUTO
        if launch.for_cpus:
            if self._each.cpus:
                return self._each.cpus
            self._note(
                line,
                launch.processes_option,
                "spec.procsPerNode is auto, which follows the CPUs in spec.trainer.resources",
            )
            return AUTO
        if launch.launcher == PYTHON:
            self._note(
                launch.line,
                launch.raw,
                "one process per node: if the program spawns more, set spec.procsPerNode to their number",
            )
        if launch.processes is not None:
            return launch.processes
        return self._even_share(line)

    def _even_share(self, line: int) -> int:
        """The processes per node, if the line gives the number for all nodes."""
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
                    "not carried over: the processes serve metrics there; spec.rendezvous.port keeps its default",
                )
            else:
                found["port"] = launch.port
        if launch.timeout_seconds is not None:
            found["timeoutSeconds"] = launch.timeout_seconds
        if launch.conf:
            found["conf"] = dict(launch.conf)
        return found

    def _backend(self) -> str:
        """The backend that the program is given as an argument: other programs read it from the environment."""
        backend = ""
        words = self._launch.args
        for index, word in enumerate(words):
            if match := _BACKEND.fullmatch(word.text):
                following = words[index + 1].text if index + 1 < len(words) else ""
                backend = following if match[1] is None else match[1]
        if backend not in _BACKENDS:
            return ""
        if backend == "mpi" and self._launch.launcher != MPIRUN:
            message = (
                "spec.backend is left out: MPI assigns ranks only under mpirun (the program still gets the argument)"
            )
            self._note(words[0].line, "--backend mpi", message)
            return ""
        if backend in self._settings.supported.backends:
            return backend
        self._note(
            words[0].line,
            f"--backend {backend}",
            f"spec.backend is left out: this version does not support {backend} (the program still gets the argument)",
        )
        return ""

    def _trainer(self) -> dict[str, Any]:
        launch = self._launch
        found: dict[str, Any] = {"image": self._settings.image}
        found["module" if launch.is_module else "script"] = launch.program.text
        where = (
            "the image must contain this module"
            if launch.is_module
            else "the image, or a volume of spec.template, must contain this file"
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
            message = "not carried over: a pod sees only the GPUs that it requests"
            self._note(launch.line, f"{name}={env.pop(name)}", message)
        if env:
            found["env"] = [{"name": name, "value": value} for name, value in env.items()]
        if limits := self._each.limits():
            found["resources"] = {"limits": limits}
        elif self._each.gpus is None and not launch.for_gpus:
            self._note(launch.line, launch.raw, "no GPUs are requested: pass --gpus N if the program uses them")
        return found

    def _unknown(self, word: Text) -> None:
        for name in word.assumed:
            self._note(word.line, word.raw, f"{name} is not set in the script: its default is used")
        for name in word.unknown:
            if place := _IN_THE_POD.get(name):
                self._note(word.line, word.raw, f"{name} is kept as written: {place}")
            elif name.startswith("<"):
                self._note(word.line, word.raw, f"{name} is kept as written: replace it with its value")
            else:
                shown = f"${name}" if name.isidentifier() else name
                message = f"{shown} is not known from the script and is kept as written: replace it with its value"
                self._note(word.line, word.raw, message)
