"""Volumes that every node sees: folders of one folder of the host, which is mounted into all nodes."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack.console import output_of, run_step

FOLDER_ON_NODES: Final = Path("/var/lib/ddpjob-shared")
SHARED_CLASS: Final = "ddpjob-shared"
SHARED_VOLUMES: Final = 24
# The trainer image's user: fsGroup does not reach hostPath volumes.
TRAINER_UID: Final = 1000


def shared_storage() -> list[dict[str, Any]]:
    """A storage class whose volumes every node sees: folders of one folder of the host."""
    name = SHARED_CLASS
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{name}-{number}"},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": name,
                "hostPath": {"path": str(FOLDER_ON_NODES / str(number)), "type": "Directory"},
            },
        }
        for number in range(SHARED_VOLUMES)
    ]
    return [storage_class, *volumes]


def released_volumes(volumes: dict[str, Any]) -> list[str]:
    """Names of the volumes of `kubectl get pv -o json` whose claims are gone: nobody can claim them again."""
    return [
        volume["metadata"]["name"]
        for volume in volumes["items"]
        if volume["spec"].get("storageClassName") == SHARED_CLASS and volume["status"].get("phase") == "Released"
    ]


def offer_shared_volumes(kubectl: Sequence[str], shared: Path, remove: Callable[[Path], None], log: Path) -> None:
    """Have the storage class and all of its volumes there to be claimed; those of gone claims are emptied first.

    Args:
        kubectl: the beginning of a command for the cluster.
        shared: the host's folder.
        remove: removes a folder of volumes, with the files of every user in it.
        log: where output goes.

    Raises:
        StepError: the API server refuses them, or a folder cannot be emptied.
    """
    found = output_of([*kubectl, "get", "pv", "-o", "json"])
    released = released_volumes(json.loads(found)) if found else []
    for name in released:
        remove(shared / name.rpartition("-")[2])
    if released:
        run_step("removing volumes of gone claims", [*kubectl, "delete", "pv", *released], log)
    for number in range(SHARED_VOLUMES):
        _make_shared_folder(shared / str(number))
    if found is None or f'"{SHARED_CLASS}-{SHARED_VOLUMES - 1}"' not in found or released:
        storage = shared / "storage.yaml"
        storage.write_text(yaml.safe_dump_all(shared_storage()))
        run_step("shared storage", [*kubectl, "apply", "-f", str(storage)], log)


def _make_shared_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(folder, TRAINER_UID, TRAINER_UID)
    else:
        folder.chmod(0o777)
