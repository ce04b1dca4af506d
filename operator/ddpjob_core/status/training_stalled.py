"""The condition TrainingStalled."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import find_stall, steps_again
from ddpjob_core.status.conditions import Fact


def stall_facts(situation: Situation, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition TrainingStalled; not set before the first stall."""
    kind = ConditionType.TRAINING_STALLED
    known = status.condition(kind)
    stall = find_stall(situation) if status.attempt == situation.attempt.number else None
    if stall is not None:
        if known is not None and known.status == "True":
            # The seconds keep counting; writing them every few seconds would not help anyone.
            return (Fact(kind, "True", known.reason, known.message),)
        return (Fact(kind, "True", "NoStep", stall.message),)
    if known is None or known.status == "False":
        return ()
    if status.attempt != situation.attempt.number:
        return (Fact(kind, "False", "AttemptAbandoned", f"attempt {situation.attempt.number} was abandoned"),)
    if steps_again(situation):
        return (Fact(kind, "False", "StepsResumed", "steps are being completed again"),)
    return ()
