"""The condition RendezvousReady."""

from ddpjob_core.api.status import ConditionType
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.obstacle import obstacle_of
from ddpjob_core.observations.rendezvous import waiting_for_node_0
from ddpjob_core.observations.situation import Situation
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.obstacles import NAMED_OBJECTS, obstacles
from ddpjob_core.status.pods_scheduled import why_not_created


def rendezvous_ready(situation: Situation) -> Fact:
    """The condition RendezvousReady: which pods are not up, and why, or which nodes cannot reach node 0."""
    kind = ConditionType.RENDEZVOUS_READY
    states = situation.attempt.states()
    up = sum(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in states)
    if up == len(states) and (waits := waiting_for_node_0(situation)):
        if situation.spec.launcher.traits.node_0_waits:
            hint = "check that node's log, the cluster's DNS and its network policies"
            message = f"{up}/{len(states)} nodes are up, node 0 cannot reach all others; {waits[0].message}: {hint}"
            return Fact(kind, "False", waits[0].reason.value, message)
        listed = grouped_by_message(
            [(situation.attempt.names[wait.ordinal], wait.message) for wait in waits], NAMED_OBJECTS, "pods"
        )
        hint = situation.advice.check_rendezvous(situation.attempt.names[0])
        message = f"{up}/{len(states)} nodes are up, {len(waits)} cannot reach node 0; {listed}: {hint}"
        return Fact(kind, "False", waits[0].reason.value, message)
    if up == len(states):
        return Fact(kind, "True", "AllNodesUp", f"{up}/{len(states)} nodes are up")
    if were_all_up(situation):
        return Fact(kind, "True", "NodesEnded", f"{up}/{len(states)} nodes are up, {len(states) - up} have ended")
    waiting = _waiting(situation)
    reason = next((obstacle.reason for pod in waiting if (obstacle := obstacle_of(pod))), "WaitingForPods")
    # What cannot be created, or else which pods have no node, is said by PodsScheduled.
    refused = bool(situation.observed.rejections)
    named = waiting if refused else tuple(pod for pod in waiting if pod.scheduled)
    what = "not all objects can be created" if refused else f"{len(waiting) - len(named)} without a node"
    elsewhere = (f"{what}: see {ConditionType.PODS_SCHEDULED.value}",) if refused or named != waiting else ()
    return Fact(kind, "False", reason, "; ".join((_count(states), *obstacles(situation, named), *elsewhere)))


def nodes_not_up(situation: Situation) -> str:
    """Which nodes are not up, and why: what PodsScheduled and RendezvousReady say, in one sentence; "" if all are."""
    ready, waiting = rendezvous_ready(situation), _waiting(situation)
    if ready.status == "True":
        return ""
    if not waiting and not situation.observed.rejections:
        return ready.message
    refused = (why_not_created(situation, situation.status)[1],) if situation.observed.rejections else ()
    return "; ".join((_count(situation.attempt.states()), *obstacles(situation, waiting), *refused))


def _waiting(situation: Situation) -> tuple[PodRecord, ...]:
    return tuple(pod for pod in situation.attempt.present if node_state(pod) is NodeState.PENDING)


def _count(states: tuple[NodeState, ...]) -> str:
    return f"{sum(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in states)}/{len(states)} nodes are up"


def were_all_up(situation: Situation) -> bool:
    """Whether all nodes of the current attempt have been up together, so that one that is not has ended."""
    status = situation.job.status
    if status is None or status.attempt != situation.attempt.number or not status.pods_created:
        return False
    return status.holds(ConditionType.RENDEZVOUS_READY) and NodeState.PENDING not in situation.attempt.states()
