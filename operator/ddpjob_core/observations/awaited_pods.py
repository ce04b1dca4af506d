"""Nodes that have not come up because there is no room for them: the others can only wait, and give up some time.

Their end is then no failure of the program, which could not begin anywhere: a process group needs all ranks.
"""

import re
from typing import Final

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.restart import WAITING_FOR_PODS
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.obstacle import obstacle_of
from ddpjob_core.observations.situation import Situation

_NAMED: Final = 3
# The words of the launcher and of torch for the end of their wait for other nodes.
_GAVE_UP: Final = re.compile(
    r"\bnode \d+ did not (come up within|start mpirun in time)|RendezvousTimeoutError|clients joined"
    r"|client socket has timed out|store based barrier|wait timeout after"
)
# What other libraries end with. A program may also fail to reach something else, and does so at once.
_WAITS_END_AS: Final = (FailureClass.CONNECTION_LOST.value, FailureClass.COLLECTIVE_TIMEOUT.value)


def awaited_pods(situation: Situation, *, starting: bool) -> tuple[int, ...]:
    """Ordinals of the nodes without room: their pods could not be created, or have no node.

    Args:
        situation: what is known.
        starting: whether those count too that have a node and are about to start, but not those that cannot start as
            they are, for their image or a missing ConfigMap.
    """
    attempt, created = situation.attempt, situation.status.pods_created
    return tuple(
        ordinal
        for ordinal, state in enumerate(attempt.states())
        if (state is NodeState.MISSING and not created)
        or (state is NodeState.PENDING and _may_come_up(situation, ordinal, starting=starting))
    )


def as_wait(situation: Situation, failure: Failure) -> Failure:
    """The failure, or what it comes to if nodes have only given up waiting for those without room."""
    gave_up = bool(_GAVE_UP.search(failure.message))
    may_have = gave_up or failure.failure_class in _WAITS_END_AS
    awaited = awaited_pods(situation, starting=gave_up) if may_have else ()
    if not awaited:
        return failure
    first, nodes = awaited[0], len(situation.attempt.nodes)
    reasons = [(situation.attempt.names[ordinal], _why(situation, ordinal)) for ordinal in awaited]
    message = (
        f"the nodes that are up have given up waiting for {len(awaited)} of {nodes} pods: "
        f"{grouped_by_message(reasons, _NAMED, 'pods')}"
    )
    return Failure(
        ordinal=first,
        pod=situation.attempt.names[first],
        attempt=situation.attempt.number,
        failure_class=FailureClass.WAITING.value,
        reason=WAITING_FOR_PODS,
        message=message[:1024],
        consequences=[failure.message[:253]],
    )


def _may_come_up(situation: Situation, ordinal: int, *, starting: bool) -> bool:
    pod = situation.attempt.nodes[ordinal]
    if pod is None or pod.node_lost:
        return False
    return not pod.scheduled or (starting and obstacle_of(pod) is None)


def _why(situation: Situation, ordinal: int) -> str:
    pod = situation.attempt.nodes[ordinal]
    if pod is not None:
        obstacle = obstacle_of(pod)
        if obstacle is not None:
            return f"{obstacle.reason}: {obstacle.message}"
        return "starting" if pod.scheduled else "waiting for a node"
    name = ObjectName("Pod", situation.attempt.names[ordinal])
    refused = {rejection.object: rejection.message for rejection in situation.observed.rejections}
    # After a refusal no other pod is asked for.
    return refused.get(name) or next(iter(refused.values()), "not created yet")
