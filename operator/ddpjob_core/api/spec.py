"""What a user asks for: `spec` of a DDPJob."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, JsonValue

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.checkpoint import Checkpoint
from ddpjob_core.api.constants import MAX_NODES
from ddpjob_core.api.deadlines import ProgressDeadline, StartupDeadline
from ddpjob_core.api.kubernetes import (
    ContainerPort,
    EnvFromSource,
    EnvVar,
    ResourceRequirements,
    SecurityContext,
    VolumeMount,
)
from ddpjob_core.api.restart import Restart


class Launcher(StrEnum):
    """Who starts the processes of a node."""

    TORCHRUN = "torchrun"
    LAUNCH = "torch.distributed.launch"
    """torchrun that gives each process its local rank as the argument --local-rank too."""
    PYTHON = "python"
    """One process a node, as plain `python` starts it; the program itself spawns more where it wants them."""
    MPIRUN = "mpirun"
    """Open MPI's mpirun on node 0, which starts the processes of all nodes; the others run sshd for it."""


class RendezvousBackend(StrEnum):
    """How the nodes find each other."""

    C10D = "c10d"
    STATIC = "static"


class Backend(StrEnum):
    """The library that carries the collectives."""

    AUTO = "auto"
    """nccl where GPUs are asked for, else gloo."""
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    """Only with the launcher mpirun, and a torch that was built with MPI, as Debian's is."""


class CleanPodPolicy(StrEnum):
    """Which pods are deleted once the job has finished."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    NEVER = "Never"
    IF_NOT_PRESENT = "IfNotPresent"


class Rendezvous(ApiModel):
    """How the nodes of an attempt find each other before training starts."""

    backend: RendezvousBackend = RendezvousBackend.C10D
    """c10d: the nodes agree through a store that ordinal 0 hosts. static: each node is told its rank, and ordinal 0 hosts the store at a fixed address (torchrun --master-addr)."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 29500
    """Port of the store on ordinal 0."""
    timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 600
    """How long the nodes wait for each other before the attempt fails."""
    conf: Annotated[
        dict[str, Annotated[str, Field(max_length=253)]],
        Field(
            max_length=16,
            json_schema_extra={
                "x-kubernetes-validations": [
                    {
                        "rule": "!('is_host' in self)",
                        "message": "is_host is decided by the operator (ordinal 0 hosts the store): remove it",
                    },
                    {
                        "rule": "self.all(key, key.matches('^[a-z][a-z0-9_]{0,62}$') && !self[key].contains(','))",
                        "message": "keys are torchrun --rdzv-conf keys such as keep_alive_interval; values hold no comma",
                    },
                ],
            },
        ),
    ] = {}
    """Further keys of torchrun --rdzv-conf, such as keep_alive_interval: "2"."""


class Metrics(ApiModel):
    """Where the training serves its metrics and its progress."""

    port: Annotated[int, Field(ge=1024, le=65000)] = 9401
    """Port of local rank 0; local rank k serves port + k, named metrics-k. /metrics is for Prometheus, /progress for kubectl get ddpjobs."""


class Trainer(ApiModel):
    """The container that trains, the same on every node."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "[has(self.script), has(self.module), has(self.command)].filter(given, given).size() == 1",
                    "message": "give exactly one of script (train.py), module (package.train) or command "
                    "(the whole command, nothing is put before it)",
                },
            ],
        },
    }

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Image with Python 3 and torch. It needs nothing of ddpjob's own: the launcher comes with the pod."""
    script: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """Path of the program in the image, started by the launcher as in `torchrun train.py`."""
    module: Annotated[
        str | None, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*$")
    ] = None
    """Module of the program, started by the launcher as in `torchrun -m package.train`."""
    command: Annotated[list[Annotated[str, Field(max_length=32768)]] | None, Field(min_length=1, max_length=256)] = None
    """The whole command as in a Pod; nothing is put before it, the launcher's variables are set in its environment."""
    args: Annotated[list[Annotated[str, Field(max_length=32768)]], Field(max_length=1024)] = []
    """Arguments of the program."""
    env: Annotated[
        list[EnvVar],
        Field(
            max_length=256, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
    ] = []
    """Environment variables."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=64)] = []
    """ConfigMaps and Secrets whose keys become environment variables."""
    working_dir: Annotated[str | None, Field(max_length=1024)] = None
    """Working directory, the image's when left out."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory, GPUs."""
    volume_mounts: Annotated[
        list[VolumeMount],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"]},
        ),
    ] = []
    """Volumes of template.spec.volumes mounted into this container."""
    ports: Annotated[
        list[ContainerPort],
        Field(
            max_length=64,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
            },
        ),
    ] = []
    """Further ports."""
    image_pull_policy: ImagePullPolicy | None = None
    """When the image is pulled; the cluster's default when left out."""
    security_context: SecurityContext | None = None
    """Security settings of the container, as in a Pod."""


_TEMPLATE: JsonValue = {
    "metadata": {
        "description": "Labels and annotations that each pod gets.",
        "type": "object",
        # Written by `kubectl create --dry-run=client -o yaml`, to be pasted as it is: creationTimestamp: null.
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "labels": {
                "description": "Labels of each pod; those below ddpjob.dev/ are the operator's.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "annotations": {
                "description": "Annotations of each pod.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 262144},
            },
        },
    },
    "spec": {
        "description": "As in `kubectl explain pod.spec`. The API server checks it when the first pod is created.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
}

_ALWAYS_THERE = (
    "nodes",
    "procsPerNode",
    "launcher",
    "rendezvous",
    "backend",
    "trainer",
    "gracePeriodSeconds",
    "metrics",
)
_CAN_BE_LEFT_OUT = ("template", "checkpoint")


_PORTS_APART: JsonValue = {
    "rule": "self.rendezvous.port < self.metrics.port || self.rendezvous.port >= self.metrics.port "
    "+ (type(self.procsPerNode) == int ? int(self.procsPerNode) : 256)",
    "message": "spec.rendezvous.port lies among the metrics ports (spec.metrics.port + local rank): choose another",
    "fieldPath": ".rendezvous.port",
}


_RESTARTS_OF_STATIC: JsonValue = {
    "rule": "self.rendezvous.backend != 'static' || !has(self.restart.maxProcessRestarts) "
    "|| self.restart.maxProcessRestarts == 0",
    "message": "the static rendezvous cannot restart processes inside running pods: "
    "remove spec.restart.maxProcessRestarts, or use rendezvous.backend c10d",
    "fieldPath": ".restart.maxProcessRestarts",
}


_RESTARTS_OF_LAUNCHER: JsonValue = {
    "rule": "!(self.launcher in ['python', 'mpirun']) || !has(self.restart.maxProcessRestarts) "
    "|| self.restart.maxProcessRestarts == 0",
    "message": "the launchers python and mpirun do not restart processes inside running pods: "
    "remove spec.restart.maxProcessRestarts, or use the launcher torchrun",
    "fieldPath": ".restart.maxProcessRestarts",
}


_BACKEND_MPI: JsonValue = {
    "rule": "self.backend != 'mpi' || self.launcher == 'mpirun'",
    "message": "the backend mpi takes rank and size from MPI, so mpirun has to start the processes: "
    "set spec.launcher to mpirun, or spec.backend to gloo",
    "fieldPath": ".backend",
}


_COMMAND_OF_MPIRUN: JsonValue = {
    "rule": "self.launcher != 'mpirun' || !has(self.trainer.command)",
    "message": "the launcher mpirun itself starts sshd and mpirun: give spec.trainer.script or module, not command",
    "fieldPath": ".trainer.command",
}


def _immutable(field: str) -> JsonValue:
    same = f"self.{field} == oldSelf.{field}"
    if field in _CAN_BE_LEFT_OUT:
        same = f"(has(self.{field}) ? has(oldSelf.{field}) && {same} : !has(oldSelf.{field}))"
    return {
        "rule": f"oldSelf.suspend || {same}",
        "message": f"spec.{field} cannot change while the job is not suspended: set spec.suspend to true, then change it, "
        "then set spec.suspend to false; a finished job stays as it ended: delete it, then apply it again",
        "fieldPath": f".{field}",
    }


class DDPJobSpec(ApiModel):
    """A DistributedDataParallel training on a number of nodes."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                _PORTS_APART,
                _RESTARTS_OF_STATIC,
                _RESTARTS_OF_LAUNCHER,
                _BACKEND_MPI,
                _COMMAND_OF_MPIRUN,
                *(_immutable(field) for field in (*_ALWAYS_THERE, *_CAN_BE_LEFT_OUT)),
            ],
        },
    }

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of pods, one a node of the training. Can change while suspended."""
    procs_per_node: Annotated[
        int | str,
        Field(
            json_schema_extra={
                "x-kubernetes-int-or-string": True,
                "maxLength": 16,
                "x-kubernetes-validations": [
                    {
                        "rule": "type(self) == int ? (self >= 1 && self <= 256) : self == 'auto'",
                        "message": "must be a number from 1 to 256, or auto (the GPUs asked for, else the CPU request)",
                    },
                ],
            },
        ),
    ] = "auto"
    """Training processes on each node: a number from 1 to 256, or auto: as many as GPUs are asked for, else the CPU request rounded down, at least 1."""
    launcher: Launcher = Launcher.TORCHRUN
    """Who starts the processes of a node: torchrun; torch.distributed.launch, which also passes --local-rank; mpirun: Open MPI of the image, with OMPI_COMM_WORLD_* and MASTER_* in their environment; or python: one process a node, with RANK, WORLD_SIZE (of nodes) and MASTER_* in its environment. With procsPerNode above 1 the program spawns so many itself; it is told in DDPJOB_PROCS_PER_NODE."""
    rendezvous: Rendezvous = Rendezvous()
    """How the nodes find each other."""
    backend: Backend = Backend.AUTO
    """Backend of the process group: gloo, nccl, mpi (with the launcher mpirun), or auto: nccl where the trainer's resources ask for GPUs, else gloo. Given to the program as DDPJOB_BACKEND; status.backend has what auto came to."""
    trainer: Trainer
    """The container that trains."""
    template: Annotated[dict[str, Any], Field(json_schema_extra={"properties": _TEMPLATE})] = {}
    """A pod template: volumes, nodeSelector, tolerations, affinity, sidecars, init containers, service account, labels, annotations. Its container named trainer is merged with spec.trainer, which wins; other containers are kept."""
    checkpoint: Checkpoint | None = None
    """Where checkpoints are kept; without it there is no volume, and a restart begins anew unless the program keeps its own."""
    restart: Restart = Restart()
    """What happens after a failure."""
    startup_deadline: StartupDeadline | None = None
    """How long an attempt may take to its first step; no limit when left out."""
    progress_deadline: ProgressDeadline = ProgressDeadline()
    """How long a training may go without a newer step."""
    active_deadline_seconds: Annotated[int | None, Field(ge=1, le=315360000)] = None
    """Wall time of the job since it started or was last resumed, restarts included: then it is asked to save and stop, and fails with DeadlineExceeded. As PBS' walltime; no limit when left out."""
    suspend: bool = False
    """No pods while true; running ones are asked to stop. False again starts the next attempt."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=315360000)] = None
    """The finished job is deleted with all it owns so many seconds after its completion; never when left out."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job has finished: None, Running (those whose sidecars still run) or All."""
    grace_period_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """How long the training may take to stop after SIGTERM."""
    metrics: Metrics = Metrics()
    """Where the training serves metrics and progress."""
