"""Which nodes of an elastic job train together, and which are on their way in or out.

The members of an attempt are always the ordinals from 0 on. What has a higher one is joining, if spec.nodes asks for
it, or leaving.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.names import spare_pod_name
from ddpjob_core.api.status import Member, Membership
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.observed import PodRecord, Running, Terminated
from ddpjob_core.observations.situation import Situation

JOIN_TOGETHER: Final = timedelta(seconds=30)
"""How long nodes that could join wait for others that are to join as well: each change of size stops the training."""

_SOONEST_RETRY: Final = timedelta(seconds=10)


def first_membership(situation: Situation) -> Membership:
    """The membership that an attempt begins with.

    After a failure the nodes for which there was room start again; the others join them as before.
    """
    last = situation.status.membership
    nodes = situation.spec.nodes if last is None else min(last.nodes, situation.spec.nodes)
    return Membership(attempt=situation.attempt.number, nodes=nodes, time=situation.now)


def resized(situation: Situation, membership: Membership, nodes: int) -> Membership:
    """The next membership, whose nodes start their processes together."""
    generation, now = membership.generation + 1, situation.now
    members = [_as_it_joins(situation, each) for each in membership.members or ()] or None
    return membership.model_copy(
        update={"generation": generation, "nodes": nodes, "time": now, "formed": None, "members": members}
    )


def _as_it_joins(situation: Situation, member: Member) -> Member:
    """A node that was a spare, as it is in the next membership: once that has left, another pod comes in its place."""
    attempt = situation.attempt
    if member.spare is None or member.ordinal < len(attempt.nodes):
        return member
    pod, name = attempt.others.get(member.ordinal), spare_pod_name(situation.job.name, attempt.number, member.spare)
    return member if pod is not None and pod.name == name else member.model_copy(update={"spare": None})


def outdated(situation: Situation) -> tuple[PodRecord, ...]:
    """Pods of the attempt that do not know the membership, without those that end or are to leave."""
    if situation.membership is None:
        return ()
    text = membership_text(situation.membership)
    joins = (pod for pod in joining(situation).values() if pod is not None)
    pods = (*situation.attempt.present, *joins)
    return tuple(pod for pod in pods if pod.membership != text and not _is_over(pod))


def missed(situation: Situation) -> int | None:
    """The first member that has ended without having heard of the membership; None if none has.

    However it ended, that may have come of what another node was asked to do: it is neither a success nor a failure.
    """
    if situation.membership is None:
        return None
    for ordinal, pod in enumerate(situation.attempt.nodes):
        ended = None if pod is None else pod.trainer
        if not isinstance(ended, Terminated):
            continue
        generation = None if ended.report is None else ended.report.generation
        if generation is None and ended.exit_code != 0:
            # What is killed as a whole cannot say in which one it trained: its end is what it looks like.
            continue
        if (generation or 0) < situation.membership.generation:
            return ordinal
    return None


def settles_at(situation: Situation) -> datetime | None:
    """Until when a change of size, or the loss of a node, explains that no steps are made; None without one."""
    membership, spec = situation.membership, situation.spec
    if membership is None or not membership.generation or membership.time is None:
        return None
    begun = membership.time
    if membership.rejoining is not None and spec.elastic is not None:
        begun = max(begun, membership.rejoining.time + timedelta(seconds=spec.elastic.rejoin_seconds))
    return begun + timedelta(seconds=spec.grace_period_seconds + spec.progress_deadline.seconds)


def joining(situation: Situation) -> Mapping[int, PodRecord | None]:
    """The nodes that were asked for and are not members, by ordinal: the pod of each, None where there is none."""
    size, pods = len(situation.attempt.nodes), situation.attempt.others
    return {ordinal: pods.get(ordinal) for ordinal in range(size, situation.spec.nodes)}


def leaving(situation: Situation) -> tuple[PodRecord, ...]:
    """Pods of the attempt that are not members, and that nobody asks for."""
    least = max(len(situation.attempt.nodes), situation.spec.nodes)
    return tuple(pod for ordinal, pod in situation.attempt.others.items() if ordinal >= least)


def ended_by_itself(pod: PodRecord) -> Terminated | None:
    """How a node has failed before it could join; None where it has not, or was ended from outside."""
    if pod.disruption is not None:
        return None
    if isinstance(pod.trainer, Terminated):
        return None if pod.trainer.report is not None and pod.trainer.report.stopped else pod.trainer
    return pod.init_failure.ended if pod.phase == "Failed" and pod.init_failure is not None else None


def join_again_at(situation: Situation, pod: PodRecord) -> datetime | None:
    """When another pod takes the place of one that has failed before it could join; None where none has to wait.

    The longer the members have trained without it, the longer: as long again, up to spec.restart.maxBackoffSeconds.
    """
    ended, membership = ended_by_itself(pod), situation.membership
    if ended is None or ended.seen is None or pod.deletion_time is not None:
        return None
    without = ended.seen - membership.time if membership is not None and membership.time is not None else timedelta()
    longest = timedelta(seconds=situation.spec.restart.max_backoff_seconds)
    return ended.seen + max(min(without, longest), _SOONEST_RETRY)


def join_again_moments(situation: Situation) -> tuple[datetime, ...]:
    """The moments of `join_again_at` of all that are to join."""
    if situation.membership is None:
        return ()
    pods = (pod for pod in joining(situation).values() if pod is not None)
    return tuple(due for pod in pods if (due := join_again_at(situation, pod)) is not None)


def ready_to_join(situation: Situation) -> int:
    """How many of the joining nodes could become members now: those that run, without a gap."""
    count = 0
    for pod in joining(situation).values():
        if node_state(pod) is not NodeState.RUNNING or pod is None or pod.node_lost:
            break
        count += 1
    return count


def join_at(situation: Situation) -> datetime | None:
    """When the nodes that are ready join without the others; None if none is, or if all are."""
    ready = ready_to_join(situation)
    candidates = list(joining(situation).values())
    if not 0 < ready < len(candidates):
        return None
    seen = [
        pod.trainer.seen
        for pod in candidates[:ready]
        if pod is not None and isinstance(pod.trainer, Running) and pod.trainer.seen is not None
    ]
    return max(seen) + JOIN_TOGETHER if seen else situation.now


def shrink_at(situation: Situation) -> datetime | None:
    """When the nodes that run train without those for which there is no room; None if that cannot come."""
    elastic, begun = situation.spec.elastic, situation.status.attempt_start_time
    if elastic is None or begun is None or not elastic.min_nodes <= running(situation) < len(situation.attempt.nodes):
        return None
    nodes = zip(situation.attempt.states(), situation.attempt.nodes, strict=True)
    if not all(state is NodeState.RUNNING or _has_no_room(situation, state, pod) for state, pod in nodes):
        return None
    return begun + timedelta(seconds=elastic.scale_down_after_seconds)


def _has_no_room(situation: Situation, state: NodeState, pod: PodRecord | None) -> bool:
    """Whether the scheduler finds no node for a pod, or the API server refuses to create it."""
    if pod is None:
        refused = bool(situation.observed.rejections)
        return state is NodeState.MISSING and not situation.status.pods_created and refused
    return state is NodeState.PENDING and not pod.scheduled and pod.obstacle is not None


def running(situation: Situation) -> int:
    """How many of the members run, without a gap."""
    states = situation.attempt.states()
    return next((count for count, state in enumerate(states) if state is not NodeState.RUNNING), len(states))


def are_training(situation: Situation) -> bool:
    """Whether all members run, so that others can join them."""
    return all(state is NodeState.RUNNING for state in situation.attempt.states())


def have_ended(situation: Situation) -> bool:
    """Whether a member has ended, or is gone: the size of what is over does not change any more."""
    over = (NodeState.SUCCEEDED, NodeState.FAILED, NodeState.MISSING)
    return any(state in over for state in situation.attempt.states())


def _is_over(pod: PodRecord) -> bool:
    return pod.deletion_time is not None or isinstance(pod.trainer, Terminated)
