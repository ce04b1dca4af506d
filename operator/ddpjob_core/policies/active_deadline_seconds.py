"""spec.activeDeadlineSeconds: the wall time of a job."""

from typing import Final

from ddpjob_core.api.status import Failure
from ddpjob_core.observations.active_time import active_due
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision, give_up

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"


def active_deadline(situation: Situation) -> Decision | None:
    """A job that has used up its wall time: its pods are asked to save and stop, and it has failed."""
    due = active_due(situation)
    if due is None or situation.now < due:
        return None
    seconds = situation.spec.active_deadline_seconds
    message = f"the job was active for spec.activeDeadlineSeconds ({seconds} s): it was asked to save and stop"
    failure = Failure(
        attempt=situation.status.attempt,
        failure_class=FailureClass.DEADLINE.value,
        reason=DEADLINE_EXCEEDED,
        message=message,
    )
    return give_up(situation, DEADLINE_EXCEEDED, message, failure)
