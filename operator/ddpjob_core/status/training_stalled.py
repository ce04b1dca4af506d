"""The condition TrainingStalled."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import find_stall, steps_again
from ddpjob_core.status.conditions import Fact


def stall_facts(situation: Situation, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition TrainingStalled; none before the first stall."""
    kind = ConditionType.TRAINING_STALLED
    known = status.condition(kind)
    stall = find_stall(situation) if status.attempt == situation.attempt.number else None
    if stall is not None:
        if known is not None and known.status == "True":
            # The seconds go on; a write every few seconds to say so helps nobody.
            return (Fact(kind, "True", known.reason, known.message),)
        return (Fact(kind, "True", "NoStep", stall.message),)
    if known is None or known.status == "False":
        return ()
    if status.attempt != situation.attempt.number:
        return (Fact(kind, "False", "AttemptLeft", f"attempt {situation.attempt.number} was left"),)
    if steps_again(situation):
        return (Fact(kind, "False", "StepsGoOn", "the training makes steps again"),)
    return ()
