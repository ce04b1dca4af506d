"""What a policy is asked about."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.attempt import Attempt
from ddpjob_core.observations.observed import JobRecord, Observed


@dataclass(frozen=True, slots=True)
class Situation:
    """One job with a spec that can be understood, and its pods seen as attempts.

    `status` is what was last written, or what could be rebuilt from the pods where nothing was.
    """

    observed: Observed
    spec: DDPJobSpec
    status: DDPJobStatus
    attempt: Attempt

    @property
    def job(self) -> JobRecord:
        """The job itself."""
        return self.observed.job

    @property
    def now(self) -> datetime:
        """The moment that all policies decide for."""
        return self.observed.now
