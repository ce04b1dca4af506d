"""spec.restart.backoffSeconds and maxBackoffSeconds: how long the next attempt waits."""

from datetime import datetime, timedelta

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.situation import Situation


def not_before(situation: Situation) -> datetime | None:
    """When the pods of the current attempt may be created: failures in a row double the wait.

    A resumed job does not wait: nothing failed.
    """
    status, spec = situation.status, situation.spec.restart
    restarts = status.restarts
    if restarts.last_time is None or restarts.in_a_row == 0 or _resumed_since(status, restarts.last_time):
        return None
    doublings = min(restarts.in_a_row - 1, 20)
    return restarts.last_time + timedelta(seconds=min(spec.backoff_seconds << doublings, spec.max_backoff_seconds))


def _resumed_since(status: DDPJobStatus, moment: datetime) -> bool:
    suspended = status.condition(ConditionType.SUSPENDED)
    return suspended is not None and suspended.last_transition_time > moment
