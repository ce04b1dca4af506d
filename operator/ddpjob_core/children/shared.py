"""The objects that the pods of an attempt need, and share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.checkpoint import build_claim
from ddpjob_core.children.hashes import made_from
from ddpjob_core.children.launcher_config import build_launcher, launcher_config_name
from ddpjob_core.children.ssh_key import build_ssh_key, needs_ssh_key, ssh_key_name
from ddpjob_core.observations.observed import JobRecord, PodRecord


@dataclass(frozen=True, slots=True)
class SharedNames:
    """Names of the launcher's ConfigMap and of the Secret with the key, each None where pods need none."""

    launcher: str | None = None
    ssh_key: str | None = None


def shared_names(job: JobRecord, spec: DDPJobSpec, seed: str = "", pods: Sequence[PodRecord] = ()) -> SharedNames:
    """What a pod that is created now mounts.

    Args:
        job: whose it is.
        spec: the job's spec.
        seed: a text that this process alone knows, "" where nobody else makes objects.
        pods: those of the attempt that exist. With another key than theirs, mpirun would not reach them.
    """
    names = SharedNames(
        launcher_config_name(job, spec, seed) if spec.trainer.command is None else None,
        ssh_key_name(job, seed) if needs_ssh_key(spec) else None,
    )
    keys = mounted_names(job, spec, pods)[1] if names.ssh_key is not None else ()
    return replace(names, ssh_key=keys[0]) if keys else names


def mounted_names(
    job: JobRecord, spec: DDPJobSpec, pods: Sequence[PodRecord]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the ConfigMaps that pods wait for, and of the Secrets that they mount: an operator that has died since
    gave its pods others. Those of a ConfigMap that would hold something other now are not among them.
    """
    return (
        made_from((pod.launcher for pod in pods), launcher_config_name(job, spec)),
        made_from((pod.ssh_key for pod in pods), ssh_key_name(job)),
    )


def unwatched_children(
    job: JobRecord, spec: DDPJobSpec, launchers: Sequence[str | None], ssh_keys: Sequence[str | None]
) -> tuple[Manifest, ...]:
    """Manifests of those that no watch shows: the launcher's ConfigMap, the claim and the Secret, as far as needed.

    Args:
        job: whose they are.
        spec: the job's spec.
        launchers: names of the ConfigMaps.
        ssh_keys: names of the Secrets.
    """
    claim = build_claim(job, spec.checkpoint) if spec.checkpoint is not None else None
    return (
        *(build_launcher(job, spec, each) for each in launchers if each is not None),
        *((claim,) if claim is not None else ()),
        *(build_ssh_key(job, each) for each in ssh_keys if each is not None),
    )
