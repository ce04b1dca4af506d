"""The condition TrainingStalled."""

from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import Stall, find_stall, is_unexplained, steps_again
from ddpjob_core.status.conditions import Fact


def stall_facts(situation: Situation, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition TrainingStalled; not set before the first stall."""
    kind = ConditionType.TRAINING_STALLED
    known = status.condition(kind)
    stall = find_stall(situation) if status.attempt == situation.attempt.number else None
    if stall is not None:
        return (_stalled(stall, known),)
    if known is None or known.status == "False":
        return ()
    if status.attempt != situation.attempt.number:
        return (Fact(kind, "False", "AttemptAbandoned", f"attempt {situation.attempt.number} was abandoned"),)
    if steps_again(situation):
        return (Fact(kind, "False", "StepsResumed", "steps are being completed again"),)
    return ()


def _stalled(stall: Stall, known: Condition | None) -> Fact:
    kind = ConditionType.TRAINING_STALLED
    if known is None or known.status != "True":
        return Fact(kind, "True", "NoStep", stall.message)
    if is_unexplained(known.message) and stall.culprits:
        # The stacks of the ranks, which come a little later, show which one the others wait for.
        return Fact(kind, "True", "RankBehind", stall.message)
    # The seconds keep counting; writing them every few seconds would not help anyone.
    return Fact(kind, "True", known.reason, known.message)
