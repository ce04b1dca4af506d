"""The objects that the operator would create for a job, as `decide` itself gives them without a cluster."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from ddpjob.manifests.documents import Document
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.status import ConditionType
from ddpjob_core.children.actions import Create, CreatePod
from ddpjob_core.children.pod import build_pod
from ddpjob_core.decide import decide
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord, Observed

UNKNOWN_UID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the uid that the API server gives a job."""


def record_of(document: Document, namespace: str) -> JobRecord:
    """The job of a manifest, as it would be read back from the API server.

    Args:
        document: a DDPJob without known problems.
        namespace: where it is, unless the manifest says so.

    Raises:
        UsageProblem: it cannot be understood.
    """
    metadata = document.content.get("metadata") or {}
    raw = {
        **document.content,
        "metadata": {"namespace": namespace, **metadata, "uid": metadata.get("uid") or UNKNOWN_UID, "generation": 1},
    }
    record = job_record(raw)
    if record is None:
        raise UsageProblem(f"{document.place(('metadata',))}: metadata: name and namespace are missing")
    return record


def rendered(job: JobRecord, now: datetime) -> list[Manifest]:
    """The service, the launcher's ConfigMap, the claim, the ssh key and the pods of the job's first attempt.

    The ssh key's Secret is empty: a private key must not be printed.

    Args:
        job: without a status; one that is suspended is rendered as if it were not.
        now: a moment; no object depends on it.

    Raises:
        UsageProblem: the operator would refuse the job; the message names the field.
    """
    if job.spec is None:
        raise UsageProblem(job.spec_error or "spec cannot be understood")
    spec = job.spec.model_copy(update={"suspend": False})
    fresh = JobRecord(
        job.namespace, job.name, job.uid, "", job.generation, deleting=False, spec=spec, too_large=job.too_large
    )
    plan = decide(Observed(fresh, now))
    failed = plan.status.condition(ConditionType.FAILED) if plan.status is not None else None
    if failed is not None:
        raise UsageProblem(f"the operator would refuse this job: {failed.message}")
    if plan.status is not None and not plan.actions:
        # The membership of an elastic job is written before its first pod.
        plan = decide(Observed(replace(fresh, status=plan.status), now))
    shared = [action.manifest for action in plan.actions if isinstance(action, Create)]
    pods = [action for action in plan.actions if isinstance(action, CreatePod)]
    return [*shared, *(build_pod(fresh, spec, pod.attempt, pod.ordinal, membership=pod.membership) for pod in pods)]
