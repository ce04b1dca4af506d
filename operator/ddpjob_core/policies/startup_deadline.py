"""spec.startupDeadline: an attempt that does not complete its first step in time."""

from ddpjob_core.api.deadlines import DeadlineAction, StartupDeadline
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.startup import has_started, startup_due
from ddpjob_core.policies.decision import Decision, give_up
from ddpjob_core.policies.restart import abandon
from ddpjob_core.status.rendezvous_ready import nodes_not_up


def startup_deadline(situation: Situation) -> Decision | None:
    """An attempt that has not completed a step in time."""
    deadline, due = situation.spec.startup_deadline, startup_due(situation)
    if deadline is None or due is None or deadline.action is DeadlineAction.WARN:
        return None
    if situation.now < due or has_started(situation):
        return None
    failure = _not_started(situation, deadline)
    if deadline.action is DeadlineAction.RESTART:
        return abandon(situation, failure)
    return give_up(situation, failure.reason, failure.message, failure)


def _not_started(situation: Situation, deadline: StartupDeadline) -> Failure:
    states = situation.attempt.states()
    ordinal = next((index for index, state in enumerate(states) if state is NodeState.PENDING), None)
    waits = nodes_not_up(situation) or "all nodes are running, but rank 0 has not reported a step"
    return Failure(
        ordinal=ordinal,
        pod=situation.attempt.names[ordinal] if ordinal is not None else None,
        attempt=situation.attempt.number,
        failure_class=FailureClass.DEADLINE.value,
        reason="StartupDeadlineExceeded",
        message=f"no first step within spec.startupDeadline ({deadline.seconds} s): {waits}"[:1024],
    )
