"""spec.checkpoint: the claim that is made, where it is mounted, and what the program is told of it."""

from typing import Any, Final

from ddpjob_core.api.checkpoint import AccessMode, Checkpoint, Retain
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.names import claim_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.observations.observed import JobRecord

VOLUME: Final = "ddpjob-checkpoints"
WRITERS_GROUP: Final = 1000
"""Group that a volume is given to where the template names none: a new disk belongs to root, programs do not."""


def build_claim(job: JobRecord, checkpoint: Checkpoint) -> Manifest | None:
    """The claim's manifest, None where the user brings one.

    A claim that is retained has no owner, so that deleting the job leaves it.
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
    """What every rank is told, wherever the volume is mounted: all of them take part in a save."""
    environment = {
        "DDPJOB_CHECKPOINT_PATH": f"{checkpoint.path}/{job.uid}",
        "DDPJOB_CHECKPOINT_KEEP_LAST": str(checkpoint.keep_last),
    }
    if checkpoint.resume_from is not None:
        environment["DDPJOB_RESUME_FROM"] = checkpoint.resume_from
    return environment
