"""spec.restart.backoffSeconds and maxBackoffSeconds: how long the next attempt waits."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Restarts

LONGEST_BRAKE: Final = timedelta(minutes=5)
"""Longest wait between attempts that no budget limits. One that has lasted as long ends a run of them."""
_MOST_DOUBLINGS: Final = 20


def not_before(status: DDPJobStatus, spec: Restart) -> datetime | None:
    """When the pods of the current attempt may be created: failures in a row double the wait.

    A resumed job does not wait: nothing failed.
    """
    restarts = status.restarts
    if restarts.last_time is None or restarts.in_a_row == 0 or _resumed_since(status, restarts.last_time):
        return None
    doublings = min(restarts.in_a_row - 1, _MOST_DOUBLINGS)
    backoff = timedelta(seconds=min(spec.backoff_seconds << doublings, spec.max_backoff_seconds))
    return restarts.last_time + max(backoff, _brake(restarts))


def _brake(restarts: Restarts) -> timedelta:
    """The least wait after restarts that no budget limits, whatever the spec says: their pods are everybody's load."""
    if restarts.unlimited_in_a_row <= 1:
        return timedelta()
    return min(timedelta(seconds=1 << min(restarts.unlimited_in_a_row - 2, _MOST_DOUBLINGS)), LONGEST_BRAKE)


def _resumed_since(status: DDPJobStatus, moment: datetime) -> bool:
    suspended = status.condition(ConditionType.SUSPENDED)
    return suspended is not None and suspended.last_transition_time > moment
