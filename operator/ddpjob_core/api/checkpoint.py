"""spec.checkpoint: where the training keeps its checkpoints."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.kubernetes import Quantity


class AccessMode(StrEnum):
    """How the volume can be mounted."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class Retain(StrEnum):
    """What becomes of a claim that the operator made when the job is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Checkpoint(ApiModel):
    """A volume for checkpoints, and which of them are kept and continued."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.claimName) != has(self.size)",
                    "message": "give either claimName (a PersistentVolumeClaim that exists) or size (one is made)",
                },
                {
                    "rule": "has(self.size) || !has(self.storageClassName)",
                    "message": "storageClassName is for a claim that is made: give size instead of claimName",
                    "fieldPath": ".storageClassName",
                },
            ],
        },
    }

    claim_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """An existing PersistentVolumeClaim of the job's namespace. Instead of size."""
    size: Quantity | None = None
    """Size of a claim that the operator makes, named <job>-checkpoints. Instead of claimName."""
    storage_class_name: Annotated[str | None, Field(max_length=253)] = None
    """Storage class of the claim that is made; the cluster's default when left out."""
    access_mode: AccessMode = AccessMode.READ_WRITE_MANY
    """ReadWriteMany: mounted on every node. ReadWriteOnce: on ordinal 0 alone, which is enough for ddpjob_trainer: it reads and writes on rank 0."""
    path: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/[^:]*[^:/]$")] = "/checkpoints"
    """Where the volume is mounted. The job's files lie in <path>/<uid of the job>, which the program is told as DDPJOB_CHECKPOINT_PATH."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many checkpoints ddpjob_trainer keeps; with early stopping the best one stays beside them."""
    retain: Retain = Retain.RETAIN
    """Retain: a claim that was made stays when the job is deleted, and a job of the same name uses it again. Delete: it goes with the job."""
    resume_from: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Name of an older job whose newest checkpoint on this volume is continued, as long as this job has none of its own."""
