"""spec.ttlSecondsAfterFinished: when a finished job is deleted."""

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.actions import DeleteJob
from ddpjob_core.observations.expiry import expires_at
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision


def with_time_to_live(spec: DDPJobSpec, seconds: int | None) -> DDPJobSpec:
    """The spec, with this time to live where it has none of its own; None keeps finished jobs."""
    if seconds is None or spec.ttl_seconds_after_finished is not None:
        return spec
    return spec.model_copy(update={"ttl_seconds_after_finished": seconds})


def ttl_seconds_after_finished(situation: Situation) -> Decision | None:
    """A finished job whose time is up: it is deleted, and all that it owns with it."""
    due = expires_at(situation)
    if due is None or situation.now < due:
        return None
    return Decision(situation.status, (DeleteJob(situation.job.uid),))
