"""The input of a policy."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_core.api.ordinals import parse_ordinals
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.advice import Advice
from ddpjob_core.observations.attempt import Attempt, current_attempt, view_attempt
from ddpjob_core.observations.observed import JobRecord, Observed
from ddpjob_core.observations.progress import reported_progress, with_restarts


@dataclass(frozen=True, slots=True)
class Situation:
    """One job with a spec that can be understood, and its pods seen as attempts.

    `status` is what was last written, or what could be rebuilt from the pods where nothing was.
    """

    observed: Observed
    spec: DDPJobSpec
    status: DDPJobStatus
    attempt: Attempt
    advice: Advice

    @property
    def job(self) -> JobRecord:
        """The job itself."""
        return self.observed.job

    @property
    def now(self) -> datetime:
        """The moment that all policies decide for."""
        return self.observed.now


def situation_of(observed: Observed, spec: DDPJobSpec, advice: Advice) -> Situation:
    """The situation of a job with this spec, as the pods show it."""
    written = observed.job.status
    attempt = view_attempt(
        observed.job.name,
        current_attempt(observed.job, observed.pods),
        spec.nodes,
        observed.pods,
        succeeded=_succeeded(written, spec.nodes),
        vanished=observed.vanished,
    )
    return Situation(observed, spec, _up_to_date(observed, attempt), attempt, advice)


def _up_to_date(observed: Observed, attempt: Attempt) -> DDPJobStatus:
    """What was written last, with the progress that has been reported since: the policies count by it."""
    written = observed.job.status
    status = written or DDPJobStatus(attempt=attempt.number)
    reported = None if status.finished else reported_progress(observed, attempt)
    if reported is None:
        return status
    return with_restarts(status.model_copy(update={"progress": reported[0]}), written)


def _succeeded(written: DDPJobStatus | None, nodes: int) -> frozenset[int]:
    known = written.nodes if written is not None and written.pods_created else None
    if known is None or known.desired != nodes:
        return frozenset()
    return parse_ordinals(known.succeeded_ordinals or "", nodes)
