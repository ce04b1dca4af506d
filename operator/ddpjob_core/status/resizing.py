"""The condition Resizing: how many nodes of an elastic job train, and why not as many as spec.nodes asks for."""

from typing import Final

from ddpjob_core.api.names import pod_name
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import first_few
from ddpjob_core.observations.membership import join_again_at, joining, leaving, outdated
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.rejoining import rejoining_pods, stopping
from ddpjob_core.observations.situation import Situation
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.obstacles import NAMED_OBJECTS, obstacles
from ddpjob_core.status.pods_scheduled import why_not_created

NODE_LOST: Final = "NodeLost"
"""Reason of the condition while a lost node comes back in another pod."""


def resizing_facts(situation: Situation, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition, for an elastic job whose attempt has its pods; none for others.

    Args:
        situation: in which the members are those of the decided status.
        status: what was decided.
    """
    if situation.membership is None or not status.pods_created:
        return ()
    kind, size, asked = ConditionType.RESIZING, situation.membership.nodes, situation.spec.nodes
    if situation.membership.rejoining is not None:
        return (Fact(kind, "True", NODE_LOST, _lost(situation)),)
    if size < asked:
        message = f"{_train(size)} of the {asked} that spec.nodes asks for; {_awaited(situation)}"
        return (Fact(kind, "True", "NodesJoining", message),)
    lagging = [pod.name for pod in outdated(situation)]
    if lagging:
        names = ", ".join(first_few(lagging, NAMED_OBJECTS))
        message = (
            f"{_train(size)} together from now on; {names} {'has' if len(lagging) == 1 else 'have'} not heard of it"
        )
        return (Fact(kind, "True", "Announcing", message),)
    stopping = [pod.name for pod in leaving(situation)]
    if size > asked or stopping:
        names = ", ".join(first_few(stopping, NAMED_OBJECTS))
        still = f"; {names} {'is' if len(stopping) == 1 else 'are'} stopping" if stopping else ""
        return (Fact(kind, "True", "NodesLeaving", f"{_train(size)}{still}"),)
    return (Fact(kind, "False", "SizeReached", f"{_train(size)}, as many as spec.nodes asks for"),)


def _lost(situation: Situation) -> str:
    names = ", ".join(first_few(rejoining_pods(situation), NAMED_OBJECTS))
    pods = tuple(pod for pod in situation.attempt.present if node_state(pod) is NodeState.PENDING)
    saving = tuple(f"{pod.name} is still stopping" for pod in stopping(situation))
    refused = (why_not_created(situation, situation.status)[1],) if situation.observed.rejections else ()
    message = f"a node was lost: the ranks of the others keep their processes, and go on with {names}"
    return "; ".join((message, *saving, *refused, *obstacles(situation, pods)))


def _train(nodes: int) -> str:
    return "1 node trains" if nodes == 1 else f"{nodes} nodes train"


def _awaited(situation: Situation) -> str:
    """What the nodes that are to join wait for."""
    nodes = joining(situation)
    missing = [ordinal for ordinal, pod in nodes.items() if pod is None]
    if missing and situation.observed.rejections:
        return why_not_created(situation, situation.status)[1]
    width, number = situation.spec.most_nodes, situation.attempt.number
    created = (f"{pod_name(situation.job.name, number, missing[0], width)} is being created",) if missing else ()
    pods = tuple(pod for pod in nodes.values() if pod is not None)
    ended = [pod for pod in pods if node_state(pod) in (NodeState.FAILED, NodeState.SUCCEEDED)]
    waiting = tuple(pod for pod in pods if node_state(pod) is NodeState.PENDING)
    ready = sum(node_state(pod) is NodeState.RUNNING for pod in pods)
    up = (f"{ready} {'is' if ready == 1 else 'are'} ready to join",) if ready else ()
    return "; ".join((*(_ended(situation, pod) for pod in ended), *created, *obstacles(situation, waiting), *up))


def _ended(situation: Situation, pod: PodRecord) -> str:
    due = join_again_at(situation, pod)
    if due is None:
        return f"{pod.name} is being deleted, and is created again then"
    return f"{pod.name} has ended before it could join: its log says why; it is created again at {due:%H:%M:%S} UTC"
