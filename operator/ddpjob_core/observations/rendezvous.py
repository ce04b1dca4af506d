"""Nodes whose pods run but which cannot reach node 0: what their launchers report, and which nodes are polled.

A running pod may still fail to resolve or reach node 0, because of a name server or a network policy. The launcher of a
node that has been waiting for a while answers on /progress in place of its rank, until torchrun runs.
"""

from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.observed import Running, Terminated
from ddpjob_core.observations.poll import poll_targets
from ddpjob_core.observations.situation import Situation
from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.rank_report import RendezvousWait

FORGOTTEN_AFTER: Final = timedelta(seconds=6)
"""Age from which an answer no longer counts: two polls have failed by then."""
LOOK_EVERY: Final = timedelta(seconds=2)
"""How often a waiting node is checked: nothing else shows that it has stopped answering."""
MOST_NODES: Final = 16
"""Maximum number of nodes that are polled. If node 0 cannot be reached, it is rarely from a single node only."""


def waiting_for_node_0(situation: Situation) -> tuple[RendezvousWait, ...]:
    """What the nodes of the current attempt that wait for node 0 report, by ordinal."""
    number, nodes = situation.attempt.number, situation.attempt.nodes
    fresh = (
        wait
        for wait in situation.observed.waits
        if wait.attempt == number and situation.now - wait.answered < FORGOTTEN_AFTER and wait.ordinal < len(nodes)
    )
    return tuple(sorted((wait for wait in fresh if _runs(situation, wait.ordinal)), key=lambda wait: wait.ordinal))


def rendezvous_targets(situation: Situation) -> tuple[PollTarget, ...]:
    """Where nodes answer while they wait for another; none once a rank has reported or the time is up.

    A node may still wait for node 0 when that has ended.
    """
    states = situation.attempt.states()
    if not _has_ended(situation):
        if not all(state is NodeState.RUNNING for state in states):
            return ()
        if any(report.attempt == situation.attempt.number for report in situation.observed.ranks):
            return ()
    waiting = range(1) if situation.spec.launcher.traits.node_0_waits else range(1, len(states))
    asked = (ordinal for ordinal in waiting if not _is_time_up(situation, ordinal))
    # The launcher responds instead of local rank 0.
    return tuple(islice(poll_targets(situation, asked, (0,)), MOST_NODES))


def waiting_for_nobody(situation: Situation) -> RendezvousWait | None:
    """What a node reports that waits for node 0 although that has ended well; None if there is none.

    Its name is gone for good: the program of node 0 did not need the other nodes, or they came too late for it.
    """
    first = situation.attempt.last_seen(0)
    ended = first.trainer.seen if first is not None and isinstance(first.trainer, Terminated) else None
    if ended is None or not _has_ended(situation):
        return None
    return next((wait for wait in waiting_for_node_0(situation) if wait.answered > ended), None)


def next_rendezvous_check(situation: Situation) -> tuple[datetime, ...]:
    """When waiting nodes are checked again."""
    return (situation.now + LOOK_EVERY,) if waiting_for_node_0(situation) else ()


def _is_time_up(situation: Situation, ordinal: int) -> bool:
    """Whether a node has run for so long that its launcher no longer waits."""
    pod = situation.attempt.nodes[ordinal]
    since = pod.trainer.seen if pod is not None and isinstance(pod.trainer, Running) else None
    return since is not None and situation.now >= since + timedelta(seconds=situation.spec.rendezvous.timeout_seconds)


def _has_ended(situation: Situation) -> bool:
    """Whether node 0 has ended well while the others would wait for it."""
    waits = not situation.spec.launcher.traits.node_0_waits
    return waits and situation.attempt.state(0) is NodeState.SUCCEEDED


def _runs(situation: Situation, ordinal: int) -> bool:
    return situation.attempt.state(ordinal) is NodeState.RUNNING
