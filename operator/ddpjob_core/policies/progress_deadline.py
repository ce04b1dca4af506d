"""spec.progressDeadline: a stalled training run, where the action is more than a warning."""

from ddpjob_core.api.deadlines import DeadlineAction
from ddpjob_core.observations.membership import settles_at
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import failure_of, find_stall, is_action_due
from ddpjob_core.policies.decision import Decision, give_up
from ddpjob_core.policies.restart import abandon


def progress_deadline(situation: Situation) -> Decision | None:
    """A stalled training run, once its ranks have had time to report where they hang."""
    settles = settles_at(situation)
    if settles is not None and situation.now < settles:
        return None
    stall = find_stall(situation)
    if stall is None or not is_action_due(situation, stall):
        return None
    failure = failure_of(stall, situation.attempt)
    if situation.spec.progress_deadline.action is DeadlineAction.RESTART:
        return abandon(situation, failure)
    return give_up(situation, failure.reason, failure.message, failure)
