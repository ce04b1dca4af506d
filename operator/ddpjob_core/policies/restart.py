"""spec.restart: what follows a failure, and what is remembered of it."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.constants import MAX_ATTEMPT
from ddpjob_core.api.restart import RestartAction
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure, Restarts
from ddpjob_core.children.actions import Action
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.failure_class import CANNOT_START, is_permanent
from ddpjob_core.observations.observed import Running, Terminated
from ddpjob_core.observations.root_cause import POD_MISSING, find_root_cause, is_consequence
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import makes_steps
from ddpjob_core.policies.cleanup import missing_pods
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.restart_budget import budget_left, counted_restart, ignored_restart
from ddpjob_core.policies.restart_rules import action_for
from ddpjob_core.status.conditions import Fact, with_facts
from ddpjob_core.wire.report import parse_report

SETTLE: Final = timedelta(seconds=5)
"""How long after the first node's end those that still run may take to tell the cause."""
SETTLE_FOR_GOOD: Final = timedelta(seconds=20)
"""The same where the job fails for good: nobody waits for a next attempt, and the cause is what is left of the job."""
LEAVE_TOGETHER: Final = timedelta(seconds=5)
"""How long after the end of a node that was told to stop the others may take to end, as they have agreed to."""


def failed(situation: Situation) -> Decision | None:
    """An attempt of which a node has failed is left as a whole: DDP cannot go on without a rank.

    Before all pods were made a missing pod is one that is yet to be made; after that it is a failed one.
    """
    failure = _failure(situation)
    if failure is None:
        return None
    wait = _settled_at(situation, failure)
    if wait is not None and situation.now < wait:
        return Decision(situation.status, look_again=(wait,))
    saved = _saved_at(situation, failure)
    if saved is not None and situation.now < saved:
        # Written now: a pod that is being deleted may be gone at the next look, and with it why.
        known = situation.status.model_copy(update={"failure": failure})
        return Decision(known, transition=situation.status.failure != failure, look_again=(saved,))
    decision = leave(situation, failure)
    settled = _settles_at(situation, SETTLE_FOR_GOOD if is_consequence(failure) else SETTLE)
    if decision.status.finished and settled is not None and situation.now < settled:
        # Nothing is in a hurry any more: what else failed because of it is known in a moment.
        return Decision(situation.status, look_again=(settled,))
    return decision


def leave(situation: Situation, failure: Failure) -> Decision:
    """What follows a failure: the next attempt, counted or not, or the end of the job."""
    status, allowed = situation.status, situation.spec.restart.max_restarts
    action = action_for(failure, situation.spec.restart.rules)
    if action is RestartAction.FAIL and is_permanent(failure.reason, failure.message):
        return _give_up(situation, CANNOT_START, "another attempt would end the same way", failure)
    if action is RestartAction.FAIL:
        return _give_up(situation, "FailedByRule", "a rule of spec.restart.rules says Fail", failure)
    if action is RestartAction.IGNORE and status.attempt < MAX_ATTEMPT:
        return _next_attempt(situation, failure, ignored_restart(status.restarts, failure.reason, situation.now))
    used = budget_left(status.restarts, situation.spec.restart, situation.now)
    if used.exhausted or status.attempt >= MAX_ATTEMPT:
        reason = "MaxRestartsExceeded" if allowed else "RestartsNotAllowed"
        return _give_up(situation, reason, f"spec.restart.maxRestarts: {used.used} of {allowed} used", failure)
    restarts = counted_restart(status.restarts, situation.spec.restart, failure.reason, situation.now)
    limit = situation.spec.restart.no_progress_limit
    if limit and restarts.furthest_step is not None and restarts.without_progress >= limit:
        why = f"spec.restart.noProgressLimit: {limit} restarts in a row made no step beyond {restarts.furthest_step}"
        return _give_up(situation, "NoProgress", why, failure)
    return _next_attempt(situation, failure, restarts)


def _next_attempt(situation: Situation, failure: Failure, restarts: Restarts) -> Decision:
    # The pods are deleted only after this has been written: an operator that dies in between still knows why they go.
    left = situation.status.model_copy(
        update={
            "attempt": situation.status.attempt + 1,
            "pods_created": False,
            "attempt_start_time": None,
            "restarts": restarts,
            "failure": failure,
        },
    )
    return Decision(left, transition=True)


def _give_up(situation: Situation, reason: str, why: str, failure: Failure) -> Decision:
    message = f"{failure.message} (attempt {situation.status.attempt}; {why})"
    return give_up(situation, reason, message, failure, missing_pods(situation))


def _settled_at(situation: Situation, failure: Failure) -> datetime | None:
    """Until when a cause is waited for of which only consequences are known, None where nothing has to be waited for.

    The victims of a killed process often end before its own node does, which first stops its other workers.
    """
    return _settles_at(situation, SETTLE) if is_consequence(failure) else None


def _settles_at(situation: Situation, after: timedelta) -> datetime | None:
    """Until when the end of nodes is waited for that still run beside ended ones."""
    attempt = situation.attempt
    if NodeState.RUNNING not in attempt.states():
        return None
    ends = [pod.trainer.finished_at for pod in attempt.present if isinstance(pod.trainer, Terminated)]
    known = [end for end in ends if end is not None]
    return min(known) + after if known else None


def _saved_at(situation: Situation, failure: Failure) -> datetime | None:
    """Until when a training of which a pod was told to stop is waited for: its ranks save before they leave."""
    attempt = situation.attempt
    pod = attempt.last_seen(failure.ordinal) if failure.ordinal is not None else None
    # Only a training that makes steps has something to save.
    if pod is None or pod.node_lost or not (makes_steps(situation) or _has_made_steps(situation)):
        return None
    if isinstance(pod.trainer, Terminated):
        return _left_together_at(pod.trainer) if NodeState.RUNNING in attempt.states() else None
    stopping = isinstance(pod.trainer, Running) and pod.deletion_time is not None
    return pod.deletion_time + SETTLE if stopping and pod.deletion_time is not None else None


def _left_together_at(stopped: Terminated) -> datetime | None:
    """Until when the other nodes end by themselves: so they leave their logs, deleted they would not."""
    report, ended = parse_report(stopped.message), stopped.finished_at
    return ended + LEAVE_TOGETHER if report is not None and report.stopped and ended is not None else None


def _has_made_steps(situation: Situation) -> bool:
    progress = situation.status.progress
    return progress is not None and progress.attempt == situation.attempt.number and bool(progress.step)


def _failure(situation: Situation) -> Failure | None:
    states = situation.attempt.states()
    created = situation.status.pods_created
    # The other ranks would wait for the lost one until their collective times out. As long as steps are made, the node
    # is well and only its kubelet is not.
    lost = any(pod.node_lost for pod in situation.attempt.present) and not makes_steps(situation)
    if NodeState.FAILED not in states and not (created and NodeState.MISSING in states) and not lost:
        return None
    found, known = (
        find_root_cause(situation.attempt, missing_is_failed=created, lost_is_failed=lost),
        situation.status.failure,
    )
    if found is not None and found.reason == POD_MISSING and known is not None and known.attempt == found.attempt:
        # It was seen to be taken away before it was gone.
        return known if known.pod == found.pod else found
    return found


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


def not_before(situation: Situation) -> datetime | None:
    """When the pods of the current attempt may be made: failures in a row double the wait.

    A resumed job does not wait: nothing failed.
    """
    status, spec = situation.status, situation.spec.restart
    restarts = status.restarts
    if restarts.last_time is None or restarts.in_a_row == 0 or _resumed_since(status, restarts.last_time):
        return None
    doublings = min(restarts.in_a_row - 1, 20)
    return restarts.last_time + timedelta(seconds=min(spec.backoff_seconds << doublings, spec.max_backoff_seconds))


def _resumed_since(status: DDPJobStatus, moment: datetime) -> bool:
    suspended = status.condition(ConditionType.SUSPENDED)
    return suspended is not None and suspended.last_transition_time > moment
