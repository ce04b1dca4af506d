"""`spec` of a DDPJob: what a user asks for."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, JsonValue

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.checkpoint import Checkpoint
from ddpjob_core.api.constants import MAX_NODES, MAX_RANKS, MAX_SPARE_NODES
from ddpjob_core.api.deadlines import ProgressDeadline, StartupDeadline
from ddpjob_core.api.kubernetes import (
    ContainerPort,
    EnvFromSource,
    EnvVar,
    ResourceRequirements,
    SecurityContext,
    VolumeMount,
)
from ddpjob_core.api.launchers import Launcher, RendezvousBackend
from ddpjob_core.api.restart import Restart
from ddpjob_core.api.slow_rank import SlowRank


class Backend(StrEnum):
    """Communication backend of the process group."""

    AUTO = "auto"
    """nccl if GPUs are requested that can use it, otherwise gloo."""
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    """Only with the launcher mpirun and a torch built with MPI, such as Debian's."""


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job finishes."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    NEVER = "Never"
    IF_NOT_PRESENT = "IfNotPresent"


class Rendezvous(ApiModel):
    """How the nodes of an attempt find each other before training begins."""

    backend: RendezvousBackend = RendezvousBackend.C10D
    """c10d: the nodes agree on ranks through a store hosted on ordinal 0. static: each node is given its rank, and ordinal 0 hosts the store at a fixed address (torchrun --master-addr)."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 29500
    """Port of the store on ordinal 0."""
    timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 600
    """Number of seconds that the nodes wait for each other before the attempt fails."""
    conf: Annotated[
        dict[str, Annotated[str, Field(max_length=253)]],
        Field(
            max_length=16,
            json_schema_extra={
                "x-kubernetes-validations": [
                    {
                        "rule": "!('is_host' in self)",
                        "message": "is_host is set by the operator (ordinal 0 hosts the store): remove it",
                    },
                    {
                        "rule": "self.all(key, key.matches('^[a-z][a-z0-9_]{0,62}$') && !self[key].contains(','))",
                        "message": "must be torchrun --rdzv-conf keys such as keep_alive_interval, with values that contain no comma",
                    },
                ],
            },
        ),
    ] = {}
    """Additional keys for torchrun --rdzv-conf, such as keep_alive_interval: "2"."""


class Elastic(ApiModel):
    """Sizes that the job may have while it trains."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "self.minNodes <= self.maxNodes",
                    "message": "spec.elastic.minNodes must be at most spec.elastic.maxNodes",
                    "fieldPath": ".minNodes",
                },
                {
                    "rule": "self.spareNodes == 0 || self.rejoinSeconds > 0",
                    "message": "spec.elastic.spareNodes needs spec.elastic.rejoinSeconds of more than 0: "
                    "a spare takes the place of a node that the others wait for",
                    "fieldPath": ".spareNodes",
                },
            ],
        },
    }

    min_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Least number of nodes."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Greatest number of nodes."""
    scale_down_after_seconds: Annotated[int, Field(ge=1, le=86400)] = 60
    """Number of seconds that nodes of a new attempt wait for others for which the cluster has no room. Then those that run train without them, if they are at least minNodes and no node with a lower ordinal is missing; the others join when there is room."""
    rejoin_seconds: Annotated[int, Field(ge=0, le=86400)] = 60
    """Number of seconds in which a node other than node 0 that is lost while the job trains has to train again in another pod, while the ranks of the other nodes keep their processes. Only for programs that train with ddpjob_trainer.train and can do so; otherwise, and after this time, all nodes start again. 0 starts all nodes again in any case."""
    spare_nodes: Annotated[int, Field(ge=0, le=MAX_SPARE_NODES)] = 0
    """Number of pods that are kept ready besides the nodes. When a node other than node 0 is lost and comes back while the others keep their processes, one of them takes its place, and another one is created afterwards. They hold the resources of a node each, GPUs included, and do not train until then. Can change while the job runs."""


class Metrics(ApiModel):
    """Where the worker processes serve their metrics and progress."""

    port: Annotated[int, Field(ge=1024, le=65000)] = 9401
    """Port of local rank 0. Local rank k listens on port + k, which is named metrics-k. Prometheus scrapes /metrics; the operator reads /progress for kubectl get ddpjobs."""


class Trainer(ApiModel):
    """The trainer container, the same on every node."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "[has(self.script), has(self.module), has(self.command)].filter(given, given).size() == 1",
                    "message": "set exactly one of script (train.py), module (package.train) or command "
                    "(the entire command, run as given)",
                },
            ],
        },
    }

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image with Python 3 and torch. It does not need ddpjob: the operator mounts the launcher into the pod."""
    script: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """Path of the training program in the image, started by the launcher as in `torchrun train.py`. Set exactly one of script, module and command."""
    module: Annotated[
        str | None, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*$")
    ] = None
    """Python module of the training program, started by the launcher as in `torchrun -m package.train`. Set exactly one of script, module and command."""
    command: Annotated[list[Annotated[str, Field(max_length=32768)]] | None, Field(min_length=1, max_length=256)] = None
    """Entrypoint, as in a Pod. It is run as given, with the launcher's variables in its environment. Set exactly one of script, module and command."""
    args: Annotated[list[Annotated[str, Field(max_length=32768)]], Field(max_length=1024)] = []
    """Arguments to the program or command."""
    env: Annotated[
        list[EnvVar],
        Field(
            max_length=256, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
    ] = []
    """Environment variables to set in the trainer container."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=64)] = []
    """ConfigMaps and Secrets whose keys are set as environment variables."""
    working_dir: Annotated[str | None, Field(max_length=1024)] = None
    """Working directory. Defaults to the working directory of the image."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory, GPUs and other compute resources that each node requires."""
    volume_mounts: Annotated[
        list[VolumeMount],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"]},
        ),
    ] = []
    """Volumes from template.spec.volumes to mount into the trainer container."""
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
    """Additional ports to expose from the trainer container."""
    image_pull_policy: ImagePullPolicy | None = None
    """Image pull policy. Defaults to Always if the image has the tag :latest, or neither tag nor digest, and to IfNotPresent otherwise."""
    security_context: SecurityContext | None = None
    """Security context of the trainer container, as in a Pod."""


_TEMPLATE: JsonValue = {
    "metadata": {
        "description": "Labels and annotations to set on each pod.",
        "type": "object",
        # Written by `kubectl create --dry-run=client -o yaml`, to be pasted as it is: creationTimestamp: null.
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "labels": {
                "description": "Labels to set on each pod. Keys with the prefix ddpjob.dev/ are set by the operator.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "annotations": {
                "description": "Annotations to set on each pod.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 262144},
            },
        },
    },
    "spec": {
        "description": "Pod spec, as in `kubectl explain pod.spec`. The API server validates it when the first pod is created.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
}


_PORTS_APART: JsonValue = {
    "rule": "self.rendezvous.port < self.metrics.port || self.rendezvous.port >= self.metrics.port "
    "+ (type(self.procsPerNode) == int ? int(self.procsPerNode) : 256)",
    "message": "spec.rendezvous.port must not be one of the metrics ports (spec.metrics.port + local rank): "
    "choose another port",
    "fieldPath": ".rendezvous.port",
}


_RANKS: JsonValue = {
    "rule": f"type(self.procsPerNode) != int || self.nodes * int(self.procsPerNode) <= {MAX_RANKS}",
    "message": f"spec.nodes x spec.procsPerNode must be at most {MAX_RANKS:,} processes: reduce one of them",
    "fieldPath": ".nodes",
}


_RANKS_OF_ELASTIC: JsonValue = {
    "rule": "!has(self.elastic) || type(self.procsPerNode) != int "
    f"|| self.elastic.maxNodes * int(self.procsPerNode) <= {MAX_RANKS}",
    "message": f"spec.elastic.maxNodes x spec.procsPerNode must be at most {MAX_RANKS:,} processes: reduce one of them",
    "fieldPath": ".elastic.maxNodes",
}


_SIZES_OF_ELASTIC: JsonValue = {
    "rule": "!has(self.elastic) || (self.nodes >= self.elastic.minNodes && self.nodes <= self.elastic.maxNodes)",
    "message": "spec.nodes must be from spec.elastic.minNodes to spec.elastic.maxNodes: choose another number of nodes, or "
    "suspend the job and change spec.elastic; minReplicas and maxReplicas of an autoscaler must be within these limits",
    "fieldPath": ".nodes",
}


_ELASTIC_LAUNCHERS = [
    launcher.value for launcher in Launcher if RendezvousBackend.C10D in launcher.traits.restarts_in_place
]
_LAUNCHER_OF_ELASTIC: JsonValue = {
    "rule": f"!has(self.elastic) || (self.launcher in {_ELASTIC_LAUNCHERS} && self.rendezvous.backend == 'c10d' "
    "&& !has(self.trainer.command))",
    "message": f"a job can change its size only with the launcher {' or '.join(_ELASTIC_LAUNCHERS)}, rendezvous.backend "
    "c10d, and trainer.script or module: remove spec.elastic, or change these",
    "fieldPath": ".elastic",
}


_RESTARTS_OF_STATIC: JsonValue = {
    "rule": "self.rendezvous.backend != 'static' || !has(self.restart.maxProcessRestarts) "
    "|| self.restart.maxProcessRestarts == 0",
    "message": "the static rendezvous cannot restart processes inside running pods: "
    "remove spec.restart.maxProcessRestarts, or use rendezvous.backend c10d",
    "fieldPath": ".restart.maxProcessRestarts",
}


_WITHOUT_RESTARTS = [launcher.value for launcher in Launcher if not launcher.traits.restarts_in_place]
_RESTARTS_OF_LAUNCHER: JsonValue = {
    "rule": f"!(self.launcher in {_WITHOUT_RESTARTS}) || !has(self.restart.maxProcessRestarts) "
    "|| self.restart.maxProcessRestarts == 0",
    "message": f"the launchers {' and '.join(_WITHOUT_RESTARTS)} do not restart processes inside running pods: "
    "remove spec.restart.maxProcessRestarts, or use the launcher torchrun",
    "fieldPath": ".restart.maxProcessRestarts",
}


_SPARES: JsonValue = {
    "rule": "!has(self.restart.spares) || self.restart.spares == 0 "
    f"|| (self.launcher in {_ELASTIC_LAUNCHERS} && self.rendezvous.backend == 'c10d' && !has(self.trainer.command))",
    "message": "spare processes take the place of workers that were killed, which needs the launcher "
    f"{' or '.join(_ELASTIC_LAUNCHERS)}, rendezvous.backend c10d, and trainer.script or module: "
    "remove spec.restart.spares, or change these",
    "fieldPath": ".restart.spares",
}


_BACKEND_MPI: JsonValue = {
    "rule": f"self.backend != 'mpi' || self.launcher in {[each.value for each in Launcher if each.traits.starts_mpi]}",
    "message": "the backend mpi takes rank and world size from MPI, so mpirun must start the processes: "
    "set spec.launcher to mpirun, or spec.backend to gloo",
    "fieldPath": ".backend",
}


_COMMAND_OF_MPIRUN: JsonValue = {
    "rule": f"!(self.launcher in {[each.value for each in Launcher if not each.traits.takes_command]}) "
    "|| !has(self.trainer.command)",
    "message": "the launcher mpirun starts sshd and mpirun itself: set spec.trainer.script or module instead of command",
    "fieldPath": ".trainer.command",
}


class DDPJobSpec(ApiModel):
    """Desired DistributedDataParallel training job."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                _PORTS_APART,
                _RANKS,
                _RANKS_OF_ELASTIC,
                _SIZES_OF_ELASTIC,
                _LAUNCHER_OF_ELASTIC,
                _RESTARTS_OF_STATIC,
                _RESTARTS_OF_LAUNCHER,
                _SPARES,
                _BACKEND_MPI,
                _COMMAND_OF_MPIRUN,
            ],
        },
    }

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of nodes, each of which is one pod; nodes x procsPerNode is at most 100,000. Can change while the job trains if spec.elastic is set, as by `kubectl scale ddpjob/NAME --replicas=4`, otherwise only while the job is suspended."""
    elastic: Elastic | None = None
    """Lets spec.nodes change while the job trains, and lets the job train with fewer nodes while there is no room for all: nodes that stay keep their pods, in which the workers start again at the new size. Only with torchrun and rendezvous.backend c10d. If unset, the size is fixed."""
    procs_per_node: Annotated[
        int | str,
        Field(
            json_schema_extra={
                "x-kubernetes-int-or-string": True,
                "maxLength": 16,
                "x-kubernetes-validations": [
                    {
                        "rule": "type(self) == int ? (self >= 1 && self <= 256) : self == 'auto'",
                        "message": "must be a number from 1 to 256, or auto (the number of GPUs requested, otherwise the CPU request)",
                    },
                ],
            },
        ),
    ] = "auto"
    """Number of worker processes per node, from 1 to 256, or auto: the number of GPUs requested (1 for shared GPUs and MIG slices), otherwise the CPU request rounded down, but at least 1."""
    launcher: Launcher = Launcher.TORCHRUN
    """What starts the worker processes. torchrun: torchrun. torch.distributed.launch: the same, but each process also gets --local-rank as an argument. mpirun: the image's Open MPI, with OMPI_COMM_WORLD_* and MASTER_* in the environment of each process. python: one process per node, with RANK, WORLD_SIZE (both counted in nodes) and MASTER_* in its environment; if procsPerNode is greater than 1, the program reads DDPJOB_PROCS_PER_NODE and spawns that many processes itself."""
    rendezvous: Rendezvous = Rendezvous()
    """How the nodes find each other."""
    backend: Backend = Backend.AUTO
    """Backend of the process group: gloo, nccl, mpi (only with the launcher mpirun), or auto: nccl if spec.trainer.resources requests whole GPUs of NVIDIA or AMD, otherwise gloo. The program reads it from DDPJOB_BACKEND; status.backend shows what auto resolved to."""
    trainer: Trainer
    """The trainer container, which runs the training program."""
    template: Annotated[dict[str, Any], Field(json_schema_extra={"properties": _TEMPLATE})] = {}
    """Pod template: volumes, nodeSelector, tolerations, affinity, sidecars, init containers, service account, labels and annotations. Its container named trainer, if any, is merged with spec.trainer, which takes precedence; other containers are kept. It may hold at most 256 KiB of text and 10,000 values, in 32 levels."""
    checkpoint: Checkpoint | None = None
    """Volume for checkpoints. If unset, no volume is mounted, and a restarted training starts from scratch unless the program keeps checkpoints of its own."""
    restart: Restart = Restart()
    """How the job restarts after a failure."""
    startup_deadline: StartupDeadline | None = None
    """Limit on the time from the start of an attempt to its first step. Defaults to no limit."""
    progress_deadline: ProgressDeadline = ProgressDeadline()
    """Limit on the time between two steps."""
    slow_rank: SlowRank = SlowRank()
    """What happens when a rank slows down the others."""
    active_deadline_seconds: Annotated[int | None, Field(ge=1, le=315360000)] = None
    """Number of seconds that the job may run since it started or was last resumed, restarts included, like a PBS walltime. After that the training is asked to save and stop, and the job fails with the reason DeadlineExceeded. Defaults to no limit."""
    suspend: bool = False
    """Whether the job is suspended. Setting it to true asks running pods to stop, and no pods run until it is false again, which starts the next attempt."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=315360000)] = None
    """Number of seconds from the completion of the job to its deletion, with everything it owns. Defaults to the operator's flag --ttl-seconds-after-finished, and to never without it."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job finishes: None, Running (pods whose sidecars are still running) or All."""
    grace_period_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """Number of seconds that the training has to save and stop after SIGTERM, before it is killed."""
    metrics: Metrics = Metrics()
    """Where the worker processes serve metrics and progress."""

    @property
    def most_nodes(self) -> int:
        """The greatest number of nodes that an attempt with this spec can have."""
        return self.nodes if self.elastic is None else max(self.nodes, self.elastic.max_nodes)
