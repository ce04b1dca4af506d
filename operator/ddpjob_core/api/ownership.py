"""Labels and owner of the objects that a job owns."""

from typing import Any, Protocol

from ddpjob_core.api.constants import API_VERSION, KIND, LABEL_JOB, LABEL_MANAGED_BY, LABEL_UID, MANAGED_BY


class Owner(Protocol):
    """A job that exists: what identifies it."""

    @property
    def namespace(self) -> str:
        """metadata.namespace."""

    @property
    def name(self) -> str:
        """metadata.name."""

    @property
    def uid(self) -> str:
        """metadata.uid."""


def job_labels(job: Owner) -> dict[str, str]:
    """Labels of every child."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: job.name, LABEL_UID: job.uid}


def owner_reference(job: Owner) -> dict[str, Any]:
    """The job as controller. Deletion of the job is not blocked, so that it works while the operator is down."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def child_metadata(job: Owner, name: str) -> dict[str, Any]:
    """Metadata of a child that is not a pod."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": job_labels(job),
        "ownerReferences": [owner_reference(job)],
    }
