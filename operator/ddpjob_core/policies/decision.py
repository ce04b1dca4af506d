"""The result of a policy."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure
from ddpjob_core.children.actions import Action
from ddpjob_core.observations.situation import Situation
from ddpjob_core.status.conditions import Fact, with_facts


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's result: what the status should say, and the actions to take once it has been written.

    `transition` means that the job enters another state, which has to be written before anything else happens.
    `unwritten` means that nothing is worth a write yet. `requeue_at` are moments at which time alone may change
    the answer.
    """

    status: DDPJobStatus
    actions: tuple[Action, ...] = ()
    transition: bool = False
    unwritten: bool = False
    requeue_at: tuple[datetime, ...] = ()


def give_up(
    situation: Situation, reason: str, message: str, failure: Failure | None, actions: tuple[Action, ...] = ()
) -> Decision:
    """The job has failed permanently."""
    status = situation.status.model_copy(
        update={"completion_time": situation.now, "failure": failure or situation.status.failure},
    )
    fact = Fact(ConditionType.FAILED, "True", reason, message)
    return Decision(with_facts(status, (fact,), situation.job.generation, situation.now), actions, transition=True)
