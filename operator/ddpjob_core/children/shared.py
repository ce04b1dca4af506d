"""The objects that the pods of an attempt need, and share."""

from collections.abc import Sequence

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.checkpoint import build_claim
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.ssh_key import build_ssh_key, needs_ssh_key
from ddpjob_core.observations.observed import JobRecord


def unwatched_children(job: JobRecord, spec: DDPJobSpec, suffixes: Sequence[str]) -> tuple[Manifest, ...]:
    """Manifests of those that no watch shows: the launcher's ConfigMap, the claim and the Secret, as far as needed.

    Args:
        job: whose they are.
        spec: the job's spec.
        suffixes: of the ConfigMaps, one for each.
    """
    claim = build_claim(job, spec.checkpoint) if spec.checkpoint is not None else None
    return (
        *((build_launcher(job, spec, each) for each in suffixes) if spec.trainer.command is None else ()),
        *((claim,) if claim is not None else ()),
        *((build_ssh_key(job),) if needs_ssh_key(spec) else ()),
    )
