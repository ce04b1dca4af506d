"""What is said about a claim for checkpoints that was there before the job.

Nobody can tell whether the operator has made it for an earlier job of the same name: anyone who may create claims in
the namespace can give one the same labels. It is used all the same, as anyone who may create pods there can write to
every claim; the job's folder in it has the job's uid.
"""

from ddpjob_core.api.checkpoint import Checkpoint
from ddpjob_core.api.names import claim_name
from ddpjob_core.observations.observed import JobRecord


def reused_claim_remark(job: JobRecord, checkpoint: Checkpoint | None, uid: str | None) -> str:
    """What to say, "" for nothing.

    Args:
        job: the job.
        checkpoint: its spec.checkpoint.
        uid: of the claim that was there, None if there was none.
    """
    if checkpoint is None or uid is None:
        return ""
    name = f"claim {claim_name(job.name)} (uid {uid})"
    advice = "if it was not kept on purpose, delete the job and the claim, or rename the job"
    if checkpoint.resume_from is None:
        return f"checkpoints go into the {name}, which was there before this job: {advice}"
    return (
        f"the {name} was there before this job, which resumes from what it holds of {checkpoint.resume_from}: {advice}"
    )
