"""Nodes whose pods run while they cannot reach node 0: what their launchers say of it, and who is asked.

That a pod runs does not tell whether its node resolves node 0's name: a name server or a network policy may stand in
the way. The launcher of a node that waits for long answers on /progress in the place of its rank, until torchrun runs.
"""

from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.observed import Running
from ddpjob_core.observations.poll import poll_targets
from ddpjob_core.observations.situation import Situation
from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.rank_report import RendezvousWait

FORGOTTEN_AFTER: Final = timedelta(seconds=6)
"""Age of an answer from which on it says nothing: two polls have failed by then."""
LOOK_EVERY: Final = timedelta(seconds=2)
"""How often a node that waits is looked at: when it stops answering, nothing else tells."""
MOST_NODES: Final = 16
"""The most nodes that are asked. Where node 0 cannot be reached, it is hardly one node alone that cannot."""


def waiting_for_node_0(situation: Situation) -> tuple[RendezvousWait, ...]:
    """What nodes of the current attempt say that wait for node 0, by ordinal."""
    number, nodes = situation.attempt.number, situation.attempt.nodes
    fresh = (
        wait
        for wait in situation.observed.waits
        if wait.attempt == number and situation.now - wait.answered < FORGOTTEN_AFTER and wait.ordinal < len(nodes)
    )
    return tuple(sorted((wait for wait in fresh if _runs(situation, wait.ordinal)), key=lambda wait: wait.ordinal))


def rendezvous_targets(situation: Situation) -> tuple[PollTarget, ...]:
    """Where nodes answer while they wait for another: none once a rank has reported or time is up."""
    states = situation.attempt.states()
    if not all(state is NodeState.RUNNING for state in states):
        return ()
    if any(report.attempt == situation.attempt.number for report in situation.observed.ranks):
        return ()
    waiting = range(1) if situation.spec.launcher.traits.node_0_waits else range(1, len(states))
    asked = (ordinal for ordinal in waiting if not _is_time_up(situation, ordinal))
    # The launcher answers in the place of local rank 0.
    return tuple(islice(poll_targets(situation, asked, (0,)), MOST_NODES))


def next_rendezvous_look(situation: Situation) -> tuple[datetime, ...]:
    """When nodes that wait are looked at again."""
    return (situation.now + LOOK_EVERY,) if waiting_for_node_0(situation) else ()


def _is_time_up(situation: Situation, ordinal: int) -> bool:
    """Whether a node has run for so long that its launcher waits no more."""
    pod = situation.attempt.nodes[ordinal]
    since = pod.trainer.since if pod is not None and isinstance(pod.trainer, Running) else None
    return since is not None and situation.now >= since + timedelta(seconds=situation.spec.rendezvous.timeout_seconds)


def _runs(situation: Situation, ordinal: int) -> bool:
    return situation.attempt.state(ordinal) is NodeState.RUNNING
