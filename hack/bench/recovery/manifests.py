"""What the benchmark applies: the DDPJob, and the same training under plain torchrun in a StatefulSet."""

import os
from typing import Any, Final

from hack.cache import ROOT

Json = dict[str, Any]

NAMESPACE: Final = "bench-recovery"
JOB: Final = "bench"
PLAIN: Final = "plain"
NODES: Final = 2
PROCESSES: Final = 2
VOLUME: Final = "/shared"
PROGRAM: Final = "/program/program.py"
DEADLINE_SECONDS: Final = 5
IMAGE: Final = os.environ.get("DDPJOB_TRAINER_IMAGE", "ddpjob-trainer:cpu")
_PORT: Final = 29500


def setting() -> list[Json]:
    """The namespace, the program, and a volume that every node sees."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "program", "namespace": NAMESPACE},
            "data": {"program.py": (ROOT / "hack/bench/recovery/program.py").read_text(encoding="utf-8")},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shared", "namespace": NAMESPACE},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "ddpjob-shared",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]


def job(marks: str, *, spares: int = 0, survives: bool = True, elastic: bool = False, spare_nodes: int = 0) -> Json:
    """The DDPJob; its budgets never end.

    Args:
        marks: folder of the marks, in the volume.
        spares: processes per pod that wait to take a killed one's place.
        survives: whether the other ranks go on when one is killed.
        elastic: whether they do so when a node is lost.
        spare_nodes: pods that wait to take a lost one's place.
    """
    # Ranks that have met before the training do not.
    arguments = [f"{VOLUME}/{marks}", *([] if survives else ["meet-first"])]
    return {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": JOB, "namespace": NAMESPACE},
        "spec": {
            "nodes": NODES,
            "procsPerNode": PROCESSES,
            **({"elastic": {"maxNodes": NODES, "spareNodes": spare_nodes}} if elastic else {}),
            "checkpoint": {"claimName": "shared", "path": VOLUME},
            "restart": {"maxRestarts": 1000, "maxProcessRestarts": 1000, "spares": spares},
            "progressDeadline": {"seconds": DEADLINE_SECONDS, "action": "Restart"},
            "trainer": {
                "image": IMAGE,
                "script": PROGRAM,
                "args": arguments,
                "volumeMounts": [{"name": "program", "mountPath": "/program"}],
            },
            "template": {"spec": {"volumes": [_program_volume()]}},
        },
    }


def plain(marks: str) -> list[Json]:
    """The same without an operator: a StatefulSet that makes lost pods again, and torchrun with restarts of its own."""
    labels = {"app": PLAIN}
    command = [
        "torchrun",
        f"--nnodes={NODES}",
        f"--nproc-per-node={PROCESSES}",
        "--max-restarts=1000",
        "--rdzv-backend=c10d",
        "--rdzv-id=plain",
        f"--rdzv-endpoint={PLAIN}-0.{PLAIN}:{_PORT}",
        PROGRAM,
        f"{VOLUME}/{marks}",
    ]
    metadata = {"name": PLAIN, "namespace": NAMESPACE}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels},
    }
    container = {
        "name": "trainer",
        "image": IMAGE,
        "command": command,
        "env": [{"name": "DDPJOB_CHECKPOINT_PATH", "value": f"{VOLUME}/plain-checkpoints"}],
        "volumeMounts": [
            {"name": "program", "mountPath": "/program"},
            {"name": "shared", "mountPath": VOLUME},
        ],
    }
    volumes = [_program_volume(), {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            "serviceName": PLAIN,
            "replicas": NODES,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}},
        },
    }
    return [service, workload]


def _program_volume() -> Json:
    return {"name": "program", "configMap": {"name": "program"}}
