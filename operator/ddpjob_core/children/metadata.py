"""Labels and owner of everything that a job owns."""

from typing import Any

from ddpjob_core.api.constants import (
    API_VERSION,
    KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_MANAGED_BY,
    LABEL_ORDINAL,
    LABEL_UID,
    MANAGED_BY,
)
from ddpjob_core.observations.observed import JobRecord


def job_labels(job: JobRecord) -> dict[str, str]:
    """Labels of every child."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: job.name, LABEL_UID: job.uid}


def pod_labels(job: JobRecord, attempt: int, ordinal: int) -> dict[str, str]:
    """Labels of a pod. The ordinal is plain, not padded: people select by it."""
    return {**job_labels(job), LABEL_ATTEMPT: str(attempt), LABEL_ORDINAL: str(ordinal)}


def pod_selector(job: JobRecord) -> str:
    """Label selector of all the job's pods."""
    return f"{LABEL_UID}={job.uid}"


def owner_reference(job: JobRecord) -> dict[str, Any]:
    """The job as controller. Deletion of the job is not blocked, so that it works while the operator is down."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def child_metadata(job: JobRecord, name: str) -> dict[str, Any]:
    """Metadata of a child that is no pod."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": job_labels(job),
        "ownerReferences": [owner_reference(job)],
    }
