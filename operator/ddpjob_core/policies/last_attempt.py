"""The number of attempts that a job may have: the names of pods have room for four digits of it."""

from ddpjob_core.api.constants import MAX_ATTEMPT
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision, give_up

TOO_MANY_ATTEMPTS = "TooManyAttempts"


def ends_with_the_last_attempt(situation: Situation, decision: Decision) -> Decision:
    """The decision of a policy, or the end of the job where that would begin an attempt too many.

    Asked of every policy that begins one, whether it counts as a restart or not: an attempt that cannot be written
    down would be begun again and again.
    """
    if decision.status.attempt <= max(MAX_ATTEMPT, situation.status.attempt):
        return decision
    last = f"attempt {situation.status.attempt} was the last of at most {MAX_ATTEMPT:,}"
    return give_up(situation, TOO_MANY_ATTEMPTS, f"{last}; delete the job and create it again", None)
