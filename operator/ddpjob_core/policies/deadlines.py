"""spec.startupDeadline, spec.progressDeadline and spec.activeDeadlineSeconds: what follows when they have passed."""

from datetime import datetime, timedelta

from ddpjob_core.api.deadlines import DeadlineAction, StartupDeadline
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Failure
from ddpjob_core.children.actions import Action, DeletePod
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import acts, failure_of, find_stall, next_look
from ddpjob_core.observations.startup import has_started, startup_due
from ddpjob_core.observations.suspension import active_since
from ddpjob_core.policies.cleanup import live_pods
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.restart import give_up, leave
from ddpjob_core.status.facts import rendezvous_ready

DEADLINE_EXCEEDED = "DeadlineExceeded"


def active_deadline(situation: Situation) -> Decision | None:
    """A job that has had its wall time: its pods are asked to save and stop, and it has failed."""
    due = active_due(situation)
    if due is None or situation.now < due:
        return None
    seconds = situation.spec.active_deadline_seconds
    message = f"the job was active for spec.activeDeadlineSeconds ({seconds} s): it was asked to save and stop"
    failure = Failure(
        attempt=situation.status.attempt,
        failure_class=FailureClass.DEADLINE.value,
        reason=DEADLINE_EXCEEDED,
        message=message,
    )
    return give_up(situation, DEADLINE_EXCEEDED, message, failure, _stops(situation))


def active_due(situation: Situation) -> datetime | None:
    """When the job has had its wall time."""
    seconds, since = situation.spec.active_deadline_seconds, active_since(situation.status)
    return None if seconds is None or since is None else since + timedelta(seconds=seconds)


def startup_deadline(situation: Situation) -> Decision | None:
    """An attempt that has made no step in time."""
    deadline, due = situation.spec.startup_deadline, startup_due(situation)
    if deadline is None or due is None or deadline.action is DeadlineAction.WARN:
        return None
    if situation.now < due or has_started(situation):
        return None
    failure = _not_started(situation, deadline)
    if deadline.action is DeadlineAction.RESTART:
        return leave(situation, failure)
    return give_up(situation, failure.reason, failure.message, failure, _stops(situation))


def stalled(situation: Situation) -> Decision | None:
    """A training that stands still, where spec.progressDeadline.action asks for more than a warning."""
    stall = find_stall(situation)
    if stall is None or not acts(situation, stall):
        return None
    failure = failure_of(stall, situation.attempt)
    if situation.spec.progress_deadline.action is DeadlineAction.RESTART:
        return leave(situation, failure)
    return give_up(situation, failure.reason, failure.message, failure, _stops(situation))


def next_deadline(situation: Situation, status: DDPJobStatus) -> tuple[datetime, ...]:
    """The moments at which a deadline may have passed."""
    if status.finished or status.holds(ConditionType.SUSPENDED):
        return ()
    dues = (active_due(situation), None if has_started(situation) else startup_due(situation))
    return (*(due for due in dues if due is not None), *next_look(situation))


def _stops(situation: Situation) -> tuple[Action, ...]:
    """Deletions of all that still runs, with its own grace period, whatever spec.cleanPodPolicy keeps of ended pods."""
    live = live_pods(situation.attempt)
    return tuple(DeletePod(pod.name, pod.uid) for pod in live if pod.deletion_time is None)


def _not_started(situation: Situation, deadline: StartupDeadline) -> Failure:
    ready = rendezvous_ready(situation)
    states = situation.attempt.states()
    ordinal = next((index for index, state in enumerate(states) if state is NodeState.PENDING), None)
    waits = ready.message if ready.status != "True" else "all nodes run, but rank 0 has reported no step"
    return Failure(
        ordinal=ordinal,
        pod=situation.attempt.names[ordinal] if ordinal is not None else None,
        attempt=situation.attempt.number,
        failure_class=FailureClass.DEADLINE.value,
        reason="StartupDeadlineExceeded",
        message=f"no first step within spec.startupDeadline ({deadline.seconds} s): {waits}"[:1024],
    )
