"""Jobs and processes for tests of a run without a cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ddpjob.local.manifest import LocalManifest, local_manifest
from ddpjob.local.network import Network
from ddpjob.local.process import Machine, process_of, trainer_container
from ddpjob.local.volumes import Places, mounts_of
from ddpjob.manifests.documents import read_documents
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observe import job_record

NETWORK = Network(29500, 9401, 2, 9401)


def manifest_of(
    name: str = "digits", *others: dict[str, Any], host_paths: Sequence[Path] = (), **spec: Any
) -> LocalManifest:
    job = {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": name},
        "spec": {"nodes": 2, "procsPerNode": 2, "trainer": {"image": "i", "script": "train.py"}, **spec},
    }
    return local_manifest(read_documents(yaml.safe_dump_all([*others, job]), "job.yaml"), host_paths=host_paths)


def machine(folder: Path, gpus: tuple[str, ...] = ()) -> Machine:
    environment = {"PATH": "/bin", "HOME": "/home/me", "RANK": "7", "PET_NNODES": "9"}
    return Machine("/venv/bin/python", Path("/run/launcher.pyz"), environment, folder, gpus, "lo")


def start(manifest: LocalManifest, folder: Path, ordinal: int = 0, gpus: tuple[str, ...] = ()) -> Any:
    job = job_record({**manifest.job, "metadata": {**manifest.job["metadata"], "uid": "u1"}})
    assert job is not None
    pod = build_pod(job, manifest.spec, 0, ordinal)
    pod["metadata"]["uid"] = "p1"
    config_maps = manifest.config_maps_for(job)
    mounts = mounts_of(pod, trainer_container(pod), Places(folder / "claims", folder / "pod"), config_maps)
    return process_of(
        pod,
        ordinal,
        network=NETWORK,
        mounts=mounts,
        machine=machine(folder, gpus),
        termination_log=folder / "log",
        config_maps=config_maps,
    )
