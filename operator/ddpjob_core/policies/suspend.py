"""spec.suspend: stopping without failing, and resuming as the next attempt.

The condition Suspended carries the intent (False/Stopping, True/Suspended), so that pods which end because they were
asked to never count as failed, even if the operator is restarted or the user resumes the job half-way.
"""

from datetime import datetime

from ddpjob_core.api.status import ConditionType
from ddpjob_core.children.deletions import deletions, missing_pods
from ddpjob_core.observations.attempt import LOST_AFTER, NodeState, all_pods, is_terminal, live_pods
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.suspension import RESUMED, STOPPING, SUSPENDED, is_stopping
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.next_attempt import in_next_attempt
from ddpjob_core.status.conditions import Fact, with_facts


def suspending(situation: Situation) -> Decision | None:
    """A job that is to be suspended: its live pods are deleted with their own grace period, and waited for.

    A job whose nodes all succeeded before they were asked to stop has succeeded.
    """
    if not situation.spec.suspend:
        return None
    status, attempt = situation.status, situation.attempt
    suspended = status.holds(ConditionType.SUSPENDED)
    asked = suspended or is_stopping(status)
    if not asked and all(state is NodeState.SUCCEEDED for state in attempt.states()):
        return None
    waited_for = [
        pod
        for pod in all_pods(attempt)
        # Another operator, which sees these for the first time, does not wait again for one that was given up.
        if _is_waited_for(pod, situation.now) and not (suspended and pod.deletion_time is not None)
    ]
    if waited_for:
        fact = Fact(
            ConditionType.SUSPENDED,
            "False",
            STOPPING,
            f"waiting for {len(waited_for)} pods to stop, for at most {situation.spec.grace_period_seconds} s each",
        )
    else:
        fact = Fact(ConditionType.SUSPENDED, "True", SUSPENDED, situation.advice.resume())
    update = {} if status.start_time or not attempt.present else {"start_time": situation.now}
    return Decision(
        with_facts(status.model_copy(update=update), (fact,), situation.job.generation, situation.now),
        (
            *deletions(live_pods(attempt)),
            *(() if asked else missing_pods(situation)),
        ),
        transition=not asked or (not waited_for and not suspended),
        requeue_at=tuple(until for pod in waited_for if (until := _waited_until(pod)) is not None),
    )


def _is_waited_for(pod: PodRecord, now: datetime) -> bool:
    until = _waited_until(pod)
    return not is_terminal(pod) and (until is None or now < until)


def _waited_until(pod: PodRecord) -> datetime | None:
    """Until when a pod that is being deleted delays the suspension: its node may no longer answer."""
    if pod.deletion_time is None:
        return None
    return pod.deletion_time if pod.node_lost else pod.deletion_time + LOST_AFTER


def resuming(situation: Situation) -> Decision | None:
    """A job that is resumed: its next set of pods is a new attempt, not counted as a restart."""
    status = situation.status
    if situation.spec.suspend or not (is_stopping(status) or status.holds(ConditionType.SUSPENDED)):
        return None
    # A job that was suspended before it had any pod starts with attempt 0.
    number = status.attempt + 1 if status.start_time is not None else status.attempt
    fact = Fact(ConditionType.SUSPENDED, "False", RESUMED, f"resumed with attempt {number}")
    resumed = in_next_attempt(status, attempt=number)
    return Decision(
        with_facts(resumed, (fact,), situation.job.generation, situation.now),
        transition=True,
    )
