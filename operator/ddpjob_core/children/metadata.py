"""Labels of a job's pods."""

from ddpjob_core.api.constants import LABEL_ATTEMPT, LABEL_ORDINAL, LABEL_SPARE, LABEL_UID
from ddpjob_core.api.ownership import job_labels
from ddpjob_core.observations.observed import JobRecord


def pod_labels(job: JobRecord, attempt: int, ordinal: int) -> dict[str, str]:
    """Labels of a pod. The ordinal is plain, not padded: people select by it."""
    return {**job_labels(job), LABEL_ATTEMPT: str(attempt), LABEL_ORDINAL: str(ordinal)}


def spare_labels(job: JobRecord, number: int) -> dict[str, str]:
    """Labels of the pod of a spare node: without a rank it has no ordinal, and nobody counts it in an attempt."""
    return {**job_labels(job), LABEL_SPARE: str(number)}


def labels_of_a_place(attempt: int, ordinal: int) -> dict[str, str | None]:
    """What changes in the labels of a spare node's pod when it becomes a node."""
    return {LABEL_ATTEMPT: str(attempt), LABEL_ORDINAL: str(ordinal), LABEL_SPARE: None}


def pod_selector(job: JobRecord, attempt: int) -> str:
    """Label selector of the pods of an attempt.

    Not of all: an autoscaler asks for metrics of each pod that it selects, and those of former attempts, which are kept
    for their logs, have none.
    """
    return f"{LABEL_UID}={job.uid},{LABEL_ATTEMPT}={attempt}"
