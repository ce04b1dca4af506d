"""A spec that was edited after it could not work: the job starts again, and nothing is charged for it."""

from ddpjob_core.api.constants import INVALID_SPEC, MAX_ATTEMPT
from ddpjob_core.api.status import ConditionType
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.invalid_spec import edited_since_it_failed, invalid_template
from ddpjob_core.policies.next_attempt import in_next_attempt
from ddpjob_core.status.conditions import Fact, with_facts

SPEC_CHANGED = "SpecChanged"


def mended_spec(situation: Situation) -> Decision | None:
    """A job that failed for its spec, and whose spec has changed since: the next attempt starts, not counted.

    One that still cannot work says why it fails now.
    """
    status = situation.status
    if not edited_since_it_failed(situation.job) or status.attempt >= MAX_ATTEMPT:
        return None
    still = invalid_template(situation)
    if still is not None:
        return still
    number = status.attempt + 1
    fact = Fact(
        ConditionType.FAILED,
        "False",
        SPEC_CHANGED,
        f"spec has changed since the job failed with {INVALID_SPEC}; attempt {number} starts",
    )
    # The wall time of an attempt that could not work is not held against the job.
    started = in_next_attempt(status, start_time=None, completion_time=None)
    return Decision(with_facts(started, (fact,), situation.job.generation, situation.now), transition=True)
