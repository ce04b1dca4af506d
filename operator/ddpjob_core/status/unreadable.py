"""The condition Unreadable: a job that this version of the operator cannot read, and leaves alone with its pods.

It is all that is written: the rest of the status stays as it is, since only its writer understands it.
"""

from pydantic import ValidationError

from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus
from ddpjob_core.observations.observed import JobRecord, Observed
from ddpjob_core.status.conditions import Fact, with_facts


def unreadable(observed: Observed) -> Condition | None:
    """What is to be said about a job that cannot be read; None if the status says it, or the job has finished."""
    job = observed.job
    if job.unreadable is None or (job.status is not None and job.status.finished):
        return None
    reason = "UnknownStatus" if job.unreadable.startswith("status") else "UnknownSpec"
    correct = "" if reason == "UnknownStatus" else ", or correct the field"
    message = (
        f"{job.unreadable}: this version of the operator cannot read the job, and leaves it and its pods alone; "
        f"upgrade the operator{correct}"
    )
    before = _said(job)
    known = DDPJobStatus(conditions=[] if before is None else [before])
    fact = Fact(ConditionType.UNREADABLE, "True", reason, message)
    after = with_facts(known, (fact,), job.generation, observed.now).condition(ConditionType.UNREADABLE)
    return None if after == before else after


def readable_facts(status: DDPJobStatus) -> tuple[Fact, ...]:
    """What is to be said about a job that can be read again."""
    if not status.holds(ConditionType.UNREADABLE):
        return ()
    return (Fact(ConditionType.UNREADABLE, "False", "Read", "this version of the operator reads the job"),)


def _said(job: JobRecord) -> Condition | None:
    """The condition as it was written, whatever else stands in the status."""
    conditions = (job.raw_status or {}).get("conditions")
    for raw in conditions if isinstance(conditions, list) else ():
        if isinstance(raw, dict) and raw.get("type") == ConditionType.UNREADABLE:
            try:
                return Condition.model_validate(raw)
            except ValidationError:
                return None
    return None
