"""How conditions are set: one per type, keeping the time at which its status last changed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus

_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Fact:
    """What is to be said in one condition."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def with_facts(status: DDPJobStatus, facts: tuple[Fact, ...], generation: int, now: datetime) -> DDPJobStatus:
    """The status with these facts set, other conditions kept."""
    conditions = list(status.conditions)
    for fact in facts:
        before = next((c for c in conditions if c.type == fact.type), None)
        since = before.last_transition_time if before is not None and before.status == fact.status else now
        condition = Condition(
            type=fact.type,
            status=fact.status,
            observed_generation=generation,
            last_transition_time=since,
            reason=fact.reason,
            message=fact.message if len(fact.message) <= _MESSAGE_LIMIT else fact.message[: _MESSAGE_LIMIT - 1] + "…",
        )
        if before is None:
            conditions.append(condition)
        else:
            conditions[conditions.index(before)] = condition
    return status.model_copy(update={"conditions": conditions})
