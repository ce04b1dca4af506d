"""spec.restart: what follows a failure, and how long the next attempt waits."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob.api.constants import MAX_ATTEMPT
from ddpjob.api.status import ConditionType, DDPJobStatus, Failure, Restarts
from ddpjob.observed import Terminated
from ddpjob.plan import Action
from ddpjob.policies.attempt import NodeState
from ddpjob.policies.cleanup import missing_pods
from ddpjob.policies.conditions import Fact, with_facts
from ddpjob.policies.root_cause import find_root_cause, is_consequence
from ddpjob.policies.situation import Decision, Situation

BACKOFF: Final = timedelta(seconds=1)
MAX_BACKOFF: Final = timedelta(seconds=60)
SETTLE: Final = timedelta(seconds=5)


def failed(situation: Situation) -> Decision | None:
    """An attempt of which a node has failed is left as a whole: DDP cannot go on without a rank.

    Before all pods were made a missing pod is one that is yet to be made; after that it is a failed one.
    """
    failure = _failure(situation)
    if failure is None:
        return None
    settled = _settled_at(situation, failure)
    if settled is not None and situation.now < settled:
        return Decision(situation.status, look_again=(settled,))
    status, allowed = situation.status, situation.spec.restart.max_restarts
    used = status.restarts.counted
    if used >= allowed or status.attempt >= MAX_ATTEMPT:
        return give_up(
            situation,
            "MaxRestartsExceeded" if allowed else "RestartsNotAllowed",
            f"{failure.message} (attempt {status.attempt}; spec.restart.maxRestarts: {used} of {allowed} used)",
            failure,
            missing_pods(situation),
        )
    restarts = Restarts(counted=used + 1, last_reason=failure.reason, last_time=situation.now)
    left = status.model_copy(
        update={"attempt": status.attempt + 1, "pods_created": False, "restarts": restarts, "failure": failure},
    )
    # The pods are deleted only after this has been written: an operator that dies in between still knows why they go.
    return Decision(left, transition=True)


def _settled_at(situation: Situation, failure: Failure) -> datetime | None:
    """Until when a cause is waited for of which only consequences are known, None where nothing has to be waited for.

    The victims of a killed process often end before its own node does, which first stops its other workers.
    """
    attempt = situation.attempt
    if not is_consequence(failure) or NodeState.RUNNING not in attempt.states():
        return None
    ends = [pod.trainer.finished_at for pod in attempt.present if isinstance(pod.trainer, Terminated)]
    known = [end for end in ends if end is not None]
    return min(known) + SETTLE if known else None


def _failure(situation: Situation) -> Failure | None:
    states = situation.attempt.states()
    if NodeState.FAILED not in states and not (situation.status.pods_created and NodeState.MISSING in states):
        return None
    return find_root_cause(situation.attempt, missing_is_failed=situation.status.pods_created)


def give_up(
    situation: Situation, reason: str, message: str, failure: Failure | None, actions: tuple[Action, ...] = ()
) -> Decision:
    """The job has failed for good."""
    status = situation.status.model_copy(
        update={"completion_time": situation.now, "failure": failure or situation.status.failure},
    )
    fact = Fact(ConditionType.FAILED, "True", reason, message)
    return Decision(
        with_facts(status, (fact,), situation.job.generation, situation.now),
        actions,
        transition=True,
    )


def not_before(status: DDPJobStatus) -> datetime | None:
    """When the pods of the current attempt may be made: failures in a row double the wait, up to a minute.

    A resumed job does not wait: nothing failed.
    """
    restarts = status.restarts
    if restarts.last_time is None or restarts.counted == 0:
        return None
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.last_transition_time > restarts.last_time:
        return None
    doublings = min(restarts.counted - 1, 10)
    return restarts.last_time + min(BACKOFF * (1 << doublings), MAX_BACKOFF)
