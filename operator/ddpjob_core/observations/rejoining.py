"""The loss of nodes that come back in other pods, while the ranks of the others keep their processes.

Ranks say that they can do so with each step that they report. The pod of a lost node is not waited for, nor is its name
used again: were its node only cut off, it could still be running.
"""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.constants import MAX_MEMBERS
from ddpjob_core.api.membership import generations_of, parse_membership, spares_of
from ddpjob_core.api.names import is_host_name, parse_spare_pod_name, pod_name
from ddpjob_core.api.spec import Elastic
from ddpjob_core.api.status import Member, Membership, Rejoining
from ddpjob_core.observations.attempt import LOST_AFTER, NodeState, has_stopped
from ddpjob_core.observations.membership import missed, running
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.spare_nodes import ready_spares, without_spares
from ddpjob_core.observations.stall import makes_steps

_SIGNAL_BASE: Final = 128


def rejoining(situation: Situation) -> Rejoining | None:
    """The loss of nodes that others wait for; None without one."""
    return None if situation.membership is None else situation.membership.rejoining


def lost_nodes(situation: Situation) -> tuple[int, ...]:
    """The nodes whose pods are lost; none if anything else has happened that the other nodes cannot bear.

    Without node 0 there is no store where the ranks meet, and a pod that has come in the place of a lost one shows that
    another one would not do better.
    """
    attempt, known = situation.attempt, rejoining(situation)
    states = attempt.states()
    over = {NodeState.SUCCEEDED, NodeState.FAILED, NodeState.MISSING}
    away = not makes_steps(situation)
    gone = [
        ordinal
        for ordinal, state in enumerate(states)
        if state in over or ((pod := attempt.nodes[ordinal]) is not None and pod.node_lost and away)
    ]
    if not gone or gone[0] == 0 or not all(_is_lost(states[each], attempt.nodes[each]) for each in gone):
        return ()
    # However a node ended that had not heard of the last change, that may have come of it.
    if missed(situation) is not None:
        return ()
    membership = situation.membership
    if membership is None or (known is not None and any(membership.member(each) > known.after for each in gone)):
        return ()
    return tuple(gone)


def can_rejoin(situation: Situation) -> bool:
    """Whether the ranks have said, with the last step that they reported, that they can go on without a node."""
    membership, progress, elastic = situation.membership, situation.status.progress, situation.spec.elastic
    if membership is None or elastic is None or not elastic.rejoin_seconds or not situation.status.pods_created:
        return False
    if rejoining(situation) is not None:
        return True
    steps = progress is not None and progress.attempt == situation.attempt.number
    return steps and progress is not None and progress.rejoins == membership.generation


def without(situation: Situation, membership: Membership, lost: tuple[int, ...]) -> Membership | None:
    """The membership in which other pods take the places of lost nodes; None if their names would be too long.

    Args:
        situation: what is known.
        membership: before that.
        lost: ordinals of the nodes.
    """
    generation = membership.generation + 1
    members = generations_of(membership) | dict.fromkeys(lost, generation)
    most, number = situation.spec.most_nodes, situation.attempt.number
    named = dict(zip(lost, ready_spares(situation, lost), strict=False))
    spares = {ordinal: spare for ordinal, spare in spares_of(membership).items() if ordinal not in lost} | named
    created = [ordinal for ordinal in lost if ordinal not in named]
    names = (pod_name(situation.job.name, number, ordinal, most, generation) for ordinal in created)
    if len(members) > MAX_MEMBERS or not all(is_host_name(name) for name in names):
        return None
    begun = membership.rejoining or Rejoining(time=situation.now, after=membership.generation)
    return membership.model_copy(
        update={
            "generation": generation,
            "time": situation.now,
            "formed": membership.formed_in,
            "members": [
                Member(ordinal=each, generation=member, spare=spares.get(each))
                for each, member in sorted(members.items())
            ],
            # A spare is there already.
            "rejoining": begun.model_copy(update={"created": not (created or absent(situation))}),
            "spares": without_spares(membership, named.values()),
        }
    )


def have_rejoined(situation: Situation) -> bool:
    """Whether the ranks make steps with those of the pods that have come last."""
    membership, progress = situation.membership, situation.status.progress
    if membership is None or progress is None or progress.attempt != situation.attempt.number:
        return False
    running = all(state is NodeState.RUNNING for state in situation.attempt.states())
    return running and progress.rejoins == membership.generation


def absent(situation: Situation) -> tuple[int, ...]:
    """The nodes that others wait for and that have no pod."""
    return tuple(sorted(each for each in situation.attempt.awaited if situation.attempt.nodes[each] is None))


def left_together(situation: Situation, elastic: Elastic) -> int | None:
    """How many nodes could train without those for which there is no room; None if that is not what is missing.

    Ranks have no gap: the nodes that are left are those with the lowest ordinals, and at least minNodes.
    """
    attempt, count = situation.attempt, running(situation)
    refused = bool(situation.observed.rejections)
    rest = attempt.nodes[count:]
    waits = all(
        attempt.state(count + at) is NodeState.PENDING
        and (refused if pod is None else not pod.scheduled and pod.obstacle is not None)
        for at, pod in enumerate(rest)
    )
    return count if rest and waits and count >= elastic.min_nodes else None


def stopping(situation: Situation) -> tuple[PodRecord, ...]:
    """Pods of lost nodes that may still be saving: their ranks ask all others to save with them."""
    if rejoining(situation) is None:
        return ()
    number = situation.attempt.number
    return tuple(
        pod
        for attempt, pod in situation.attempt.older.values()
        if attempt == number and not has_stopped(pod, situation.now) and not _never_named(situation, pod)
    )


def rejoin_due(situation: Situation) -> datetime | None:
    """Until when the others wait; None if they wait for none."""
    known, elastic = rejoining(situation), situation.spec.elastic
    if known is None or elastic is None:
        return None
    ends = (pod.deletion_time for pod in stopping(situation))
    return max((known.time, *(end for end in ends if end is not None))) + timedelta(seconds=elastic.rejoin_seconds)


def rejoin_moments(situation: Situation) -> tuple[datetime, ...]:
    """When the passing of time alone changes what is to be done about a loss."""
    due = rejoin_due(situation)
    given_up = (pod.deletion_time + LOST_AFTER for pod in stopping(situation) if pod.deletion_time is not None)
    return () if due is None else (due, *given_up)


def rejoining_pods(situation: Situation) -> tuple[str, ...]:
    """Names of the pods that take the places of lost nodes."""
    known = rejoining(situation)
    membership = situation.membership
    if known is None or membership is None:
        return ()
    return tuple(
        name for ordinal, name in enumerate(situation.attempt.names) if membership.member(ordinal) > known.after
    )


def _never_named(situation: Situation, pod: PodRecord) -> bool:
    """Whether a pod is that of a spare node which has never heard that it is to train."""
    spare = parse_spare_pod_name(situation.job.name, pod.name)
    known = parse_membership(pod.membership, situation.attempt.number, situation.spec.most_nodes)
    return spare is not None and (known is None or spare.number not in spares_of(known).values())


def _is_lost(state: NodeState, pod: PodRecord | None) -> bool:
    """Whether a node's end says nothing about the program: the pod as a whole was taken away or killed."""
    if state is NodeState.SUCCEEDED:
        return False
    if pod is None or pod.deletion_time is not None or pod.disruption is not None or pod.reason == "Evicted":
        return True
    ended = pod.trainer
    if not isinstance(ended, Terminated):
        # Its node does not answer, or has refused to go on with it.
        return True
    workers = () if ended.report is None else ended.report.failures
    killed = ended.exit_code > _SIGNAL_BASE or ended.reason == "OOMKilled"
    return killed and all(each.rank is None and each.signal is not None for each in workers)
