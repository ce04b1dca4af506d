"""spec.checkpoint: where the training keeps its checkpoints."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.kubernetes import Size


class AccessMode(StrEnum):
    """How the volume can be mounted."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class Retain(StrEnum):
    """What happens to a claim that the operator created when the job is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Checkpoint(ApiModel):
    """Volume for checkpoints, which of them are kept, and where a new job resumes from."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.claimName) != has(self.size)",
                    "message": "set either claimName (an existing PersistentVolumeClaim) or size (of one to create)",
                },
                {
                    "rule": "has(self.size) || !has(self.storageClassName)",
                    "message": "storageClassName applies only to a claim that the operator creates: set size instead of claimName",
                    "fieldPath": ".storageClassName",
                },
            ],
        },
    }

    claim_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """Name of an existing PersistentVolumeClaim in the job's namespace. Set either claimName or size."""
    size: Size | None = None
    """Size of the PersistentVolumeClaim that the operator creates, named <job>-checkpoints. Set either claimName or size."""
    storage_class_name: Annotated[str | None, Field(max_length=253)] = None
    """Storage class of the claim that the operator creates. Defaults to the cluster's default storage class."""
    access_mode: AccessMode = AccessMode.READ_WRITE_MANY
    """ReadWriteMany: the volume is mounted on every node. ReadWriteOnce: it is mounted on ordinal 0 only, which is enough for ddpjob_trainer, because rank 0 reads and writes its checkpoints."""
    path: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/[^:]*[^:/]$")] = "/checkpoints"
    """Mount path of the volume. The job's checkpoints are in <path>/<uid of the job>, which the program reads from DDPJOB_CHECKPOINT_PATH."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of checkpoints that ddpjob_trainer keeps. With early stopping, the best one is kept in addition."""
    retain: Retain = Retain.RETAIN
    """What happens to a claim that the operator created. Retain: it is kept when the job is deleted, and the next job of the same name uses it. Delete: it is deleted with the job."""
    resume_from: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Name of an older job whose newest checkpoint on this volume this job resumes from, as long as it has no checkpoint of its own."""
