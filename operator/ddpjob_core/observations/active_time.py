"""How long a job has been active: what spec.activeDeadlineSeconds counts."""

from datetime import datetime, timedelta

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.suspension import RESUMED


def active_due(situation: Situation) -> datetime | None:
    """When the job has used up its wall time; None where it has no limit or has not started."""
    seconds, since = situation.spec.active_deadline_seconds, active_since(situation.status)
    return None if seconds is None or since is None else since + timedelta(seconds=seconds)


def active_since(status: DDPJobStatus) -> datetime | None:
    """Since when the job's wall time counts, restarts included: resuming starts it over, as in a Job."""
    suspended = status.condition(ConditionType.SUSPENDED)
    if status.start_time is None or suspended is None or suspended.reason != RESUMED:
        return status.start_time
    return max(status.start_time, suspended.last_transition_time)
