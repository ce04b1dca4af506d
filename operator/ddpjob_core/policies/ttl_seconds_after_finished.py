"""spec.ttlSecondsAfterFinished: when a finished job is deleted."""

from ddpjob_core.children.actions import DeleteJob
from ddpjob_core.observations.expiry import expires_at
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision


def ttl_seconds_after_finished(situation: Situation) -> Decision | None:
    """A finished job whose time is up: it is deleted, and all that it owns with it."""
    due = expires_at(situation)
    if due is None or situation.now < due:
        return None
    return Decision(situation.status, (DeleteJob(situation.job.uid),))
