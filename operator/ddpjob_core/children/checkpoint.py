"""spec.checkpoint: the claim to create, where it is mounted, and the variables that describe it to the program."""

from typing import Any, Final

from ddpjob_core.api.checkpoint import AccessMode, Checkpoint, Retain
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.names import claim_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.observations.observed import JobRecord

VOLUME: Final = "ddpjob-checkpoints"
WRITERS_GROUP: Final = 1000
"""Group of a volume unless the template sets one: a new disk belongs to root, but programs rarely run as root."""


def build_claim(job: JobRecord, checkpoint: Checkpoint) -> Manifest | None:
    """The claim's manifest, or None if the user provides a claim.

    A retained claim has no owner, so deleting the job leaves it in place.
    """
    if checkpoint.size is None:
        return None
    metadata = child_metadata(job, claim_name(job.name))
    if checkpoint.retain is Retain.RETAIN:
        del metadata["ownerReferences"]
    storage_class = checkpoint.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "accessModes": [checkpoint.access_mode.value],
            "resources": {"requests": {"storage": str(checkpoint.size)}},
            **({"storageClassName": storage_class} if storage_class is not None else {}),
        },
    }


def is_mounted(checkpoint: Checkpoint | None, ordinal: int) -> bool:
    """Whether the node of this ordinal mounts the volume."""
    return checkpoint is not None and (checkpoint.access_mode is AccessMode.READ_WRITE_MANY or ordinal == 0)


def checkpoint_volume(job: JobRecord, checkpoint: Checkpoint) -> dict[str, Any]:
    """The pod's volume."""
    return {
        "name": VOLUME,
        "persistentVolumeClaim": {"claimName": checkpoint.claim_name or claim_name(job.name)},
    }


def checkpoint_environment(job: JobRecord, checkpoint: Checkpoint) -> dict[str, str]:
    """Variables for every rank, wherever the volume is mounted: all ranks take part in a save."""
    environment = {
        "DDPJOB_CHECKPOINT_PATH": f"{checkpoint.path}/{job.uid}",
        "DDPJOB_CHECKPOINT_KEEP_LAST": str(checkpoint.keep_last),
    }
    if checkpoint.resume_from is not None:
        environment["DDPJOB_RESUME_FROM"] = checkpoint.resume_from
    return environment
