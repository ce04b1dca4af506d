"""status.phase: the state of a job, in one word for people."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus, Phase
from ddpjob_core.observations.suspension import RESUMED, STOPPING


def phase_of(status: DDPJobStatus) -> Phase:
    """The one word for people."""
    for condition, phase in (
        (ConditionType.SUCCEEDED, Phase.SUCCEEDED),
        (ConditionType.FAILED, Phase.FAILED),
        (ConditionType.SUSPENDED, Phase.SUSPENDED),
    ):
        if status.holds(condition):
            return phase
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.reason == STOPPING:
        return Phase.SUSPENDING
    if status.holds(ConditionType.RENDEZVOUS_READY):
        if status.holds(ConditionType.TRAINING_STALLED):
            return Phase.STALLED
        return Phase.RUNNING
    resumed_since = suspended.last_transition_time if suspended is not None and suspended.reason == RESUMED else None
    restarted = status.restarts.last_time
    if restarted is not None and (resumed_since is None or resumed_since <= restarted):
        return Phase.RESTARTING
    return Phase.STARTING if status.holds(ConditionType.PODS_SCHEDULED) else Phase.PENDING
