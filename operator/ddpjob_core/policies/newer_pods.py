"""Pods of a later attempt than the status names: the job that is known here is older than its pods.

Jobs and pods are watched apart. An operator that has just taken over may see the pods that the one before created
before it sees the status that this one wrote first. By the older status they would be left-overs of an abandoned
attempt, and be deleted while they train. A status that is written is refused in that case, a deletion is not.
"""

from datetime import timedelta
from typing import Final

from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision

CATCH_UP: Final = timedelta(seconds=15)
"""How long after a takeover the newer status is waited for. After that someone has set the attempt back."""


def newer_pods(situation: Situation) -> Decision | None:
    """A job that is not decided on before its newest status is known."""
    since, number = situation.observed.taken_over, situation.attempt.number
    if since is None or not any(attempt > number for attempt, _ in situation.attempt.older.values()):
        return None
    until = since + CATCH_UP
    return Decision(situation.status, unwritten=True, requeue_at=(until,)) if situation.now < until else None
