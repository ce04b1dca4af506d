"""Labels of a job's pods."""

from ddpjob_core.api.constants import LABEL_ATTEMPT, LABEL_ORDINAL, LABEL_UID
from ddpjob_core.api.ownership import job_labels
from ddpjob_core.observations.observed import JobRecord


def pod_labels(job: JobRecord, attempt: int, ordinal: int) -> dict[str, str]:
    """Labels of a pod. The ordinal is plain, not padded: people select by it."""
    return {**job_labels(job), LABEL_ATTEMPT: str(attempt), LABEL_ORDINAL: str(ordinal)}


def pod_selector(job: JobRecord, attempt: int) -> str:
    """Label selector of the pods of an attempt.

    Not of all: an autoscaler asks for metrics of each pod that it selects, and those of former attempts, which are kept
    for their logs, have none.
    """
    return f"{LABEL_UID}={job.uid},{LABEL_ATTEMPT}={attempt}"
