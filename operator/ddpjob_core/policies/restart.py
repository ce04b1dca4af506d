"""spec.restart: what happens after a failure."""

from dataclasses import replace
from datetime import datetime

from ddpjob_core.api.constants import MAX_ATTEMPT
from ddpjob_core.api.restart import WAITING_FOR_PODS, RestartAction
from ddpjob_core.api.status import Failure, Restarts
from ddpjob_core.children.deletions import missing_pods
from ddpjob_core.observations.failed_attempt import cause_known_at, consequences_known_at, find_failure, saved_at
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision, give_up
from ddpjob_core.policies.restart_budget import budget_left, counted_restart, ignored_restart
from ddpjob_core.policies.restart_rules import action_for, why_failed


def restart(situation: Situation) -> Decision | None:
    """An attempt with a failed node is abandoned as a whole: DDP cannot continue without a rank."""
    failure = find_failure(situation)
    if failure is None:
        return None
    cause = cause_known_at(situation, failure)
    if cause is not None and situation.now < cause:
        return Decision(situation.status, requeue_at=(cause,))
    saved = saved_at(situation, failure)
    if saved is not None and situation.now < saved:
        # Written now: a pod that is being deleted may be gone at the next reconcile, and with it the reason.
        known = situation.status.model_copy(update={"failure": failure})
        return Decision(known, transition=situation.status.failure != failure, requeue_at=(saved,))
    decision = abandon(situation, failure)
    settled = consequences_known_at(situation, failure)
    if decision.status.finished and settled is not None and situation.now < settled:
        # No longer urgent: its consequences will be known in a moment.
        return Decision(situation.status, requeue_at=(settled,))
    return decision


def abandon(situation: Situation, failure: Failure) -> Decision:
    """What happens after a failure: the next attempt, counted or not, or the end of the job."""
    restarts = restarts_after(situation, failure)
    if isinstance(restarts, Restarts):
        return next_attempt_after(situation, failure, restarts)
    return _give_up(situation, *restarts, failure)


def restarts_after(situation: Situation, failure: Failure) -> Restarts | tuple[str, str]:
    """The restarts with one for this failure, counted or not; where the job fails, the reason and an explanation."""
    status, spec = situation.status, situation.spec.restart
    action = action_for(failure, spec.rules)
    if action is RestartAction.FAIL:
        return why_failed(failure)
    if action is RestartAction.IGNORE and status.attempt < MAX_ATTEMPT:
        return ignored_restart(status, spec, failure.reason, situation.now)
    used, allowed = budget_left(status.restarts, spec, situation.now), spec.max_restarts
    if used.exhausted or status.attempt >= MAX_ATTEMPT:
        reason = "MaxRestartsExceeded" if allowed else "RestartsNotAllowed"
        return reason, f"spec.restart.maxRestarts: {used.used} of {allowed} used"
    restarts = counted_restart(status, spec, failure.reason, situation.now)
    limit = spec.no_progress_limit
    if limit and restarts.furthest_step is not None and restarts.without_progress >= limit:
        step = restarts.last_furthest_step or 0
        return (
            "NoProgress",
            f"spec.restart.noProgressLimit: no step beyond {step} in {limit} restarts, and no newer checkpoint",
        )
    return restarts


def next_attempt_after(situation: Situation, failure: Failure, restarts: Restarts) -> Decision:
    """The next attempt.

    Args:
        situation: of the attempt that has failed.
        failure: why.
        restarts: with the one that this is, if it was not counted before.
    """
    # The pods are deleted only after this has been written: an operator that dies in between still knows why they go.
    left = situation.status.model_copy(
        update={
            "start_time": _started(situation),
            "attempt": situation.status.attempt + 1,
            "pods_created": False,
            # The job still waits as it did: spec.startupDeadline counts on.
            "attempt_start_time": situation.status.attempt_start_time if failure.reason == WAITING_FOR_PODS else None,
            "restarts": restarts,
            "failure": failure,
        },
    )
    return Decision(left, transition=True)


def _give_up(situation: Situation, reason: str, why: str, failure: Failure) -> Decision:
    message = f"{failure.message} (attempt {situation.status.attempt}; {why})"
    decision = give_up(situation, reason, message, failure, missing_pods(situation))
    return replace(decision, status=decision.status.model_copy(update={"start_time": _started(situation)}))


def _started(situation: Situation) -> datetime:
    """When the job started: a pod may fail before all of the first attempt have been seen."""
    return situation.status.start_time or situation.now
