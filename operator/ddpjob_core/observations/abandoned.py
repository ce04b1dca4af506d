"""Pods of attempts that were abandoned: whether they still train, and which are kept for their logs."""

from datetime import datetime
from typing import Final

from ddpjob_core.api.names import parse_pod_name
from ddpjob_core.observations.attempt import LOST_AFTER, has_stopped, is_terminal
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.situation import Situation

KEPT_ATTEMPTS: Final = 3
"""Attempts before the current one whose ordinal 0 and root-cause pod are kept, so that their logs can be read."""


def abandoned_pods_run(situation: Situation) -> bool:
    """Whether a pod of an abandoned attempt still trains."""
    return any(not has_stopped(pod, situation.now) for _, pod in situation.attempt.older.values())


def abandoned_pods_given_up_at(situation: Situation) -> tuple[datetime, ...]:
    """When pods of a lost node are no longer waited for."""
    return tuple(
        pod.deletion_time + LOST_AFTER
        for _, pod in situation.attempt.older.values()
        if pod.deletion_time is not None and not has_stopped(pod, situation.now)
    )


def pods_not_kept(situation: Situation) -> tuple[PodRecord, ...]:
    """Pods of abandoned attempts: those that run, and those that have ended and whose logs are not kept."""
    return tuple(pod for number, pod in situation.attempt.older.values() if not _is_kept(situation, number, pod))


def _is_kept(situation: Situation, number: int, pod: PodRecord) -> bool:
    if not is_terminal(pod) or number < situation.attempt.number - KEPT_ATTEMPTS:
        return False
    if number < situation.attempt.number - 1:
        # What is still there of these was kept when their attempt was abandoned.
        return True
    identity, failure = parse_pod_name(situation.job.name, pod.name), situation.status.failure
    return (identity is not None and identity.ordinal == 0) or (failure is not None and failure.pod == pod.name)
