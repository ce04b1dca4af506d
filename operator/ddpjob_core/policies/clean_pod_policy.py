"""spec.cleanPodPolicy: which pods of a finished job are deleted."""

from typing import Final

from ddpjob_core.api.names import parse_spare_pod_name
from ddpjob_core.api.spec import CleanPodPolicy
from ddpjob_core.api.status import ConditionType
from ddpjob_core.children.actions import Action
from ddpjob_core.children.deletions import deletions
from ddpjob_core.observations.attempt import all_pods, is_terminal, live_pods
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision

_WHILE_RUNNING: Final = (FailureClass.STALLED, FailureClass.DEADLINE)


def clean_pod_policy(situation: Situation) -> Decision | None:
    """A finished job: nothing but its pods is left to care for."""
    if not situation.status.finished:
        return None
    return Decision(situation.status, pods_to_clean(situation))


def pods_to_clean(situation: Situation) -> tuple[Action, ...]:
    """Deletions of the pods that a finished job does not keep."""
    match situation.spec.clean_pod_policy:
        case CleanPodPolicy.NONE:
            if _would_go_on(situation):
                return deletions(live_pods(situation.attempt))
            # A node that waits to join would wait forever, and so would a spare, also one that was to go.
            attempt, job = situation.attempt, situation.job.name
            left = (pod for name, (_, pod) in attempt.older.items() if parse_spare_pod_name(job, name) is not None)
            others = (*attempt.others.values(), *attempt.spares.values(), *left)
            return deletions(pod for pod in others if not is_terminal(pod))
        case CleanPodPolicy.ALL:
            return deletions(all_pods(situation.attempt))
        case CleanPodPolicy.RUNNING:
            return deletions(live_pods(situation.attempt))


def _would_go_on(situation: Situation) -> bool:
    """Whether the job has failed although none of its nodes had: they would train on, or hang, for ever."""
    failure = situation.status.failure
    return (
        situation.status.holds(ConditionType.FAILED) and failure is not None and failure.failure_class in _WHILE_RUNNING
    )
