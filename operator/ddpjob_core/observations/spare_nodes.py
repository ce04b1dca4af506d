"""Spare nodes of an elastic job: pods that wait outside the training until one is named in the place of a lost node."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.membership import spares_of
from ddpjob_core.api.names import is_host_name, parse_spare_pod_name, spare_pod_name
from ddpjob_core.api.spares import SparePod, Spares
from ddpjob_core.api.status import Membership
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.membership import are_training, joining
from ddpjob_core.observations.node_lost import nodes_lost
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.observations.refusals import TRY_AGAIN_AFTER
from ddpjob_core.observations.situation import Situation

_FIRST_WAIT: Final = timedelta(seconds=10)
_MOST: Final = 1_000_000
"""Spares of one attempt. Who may change pods or the status could have written any number."""


def spares_of_attempt(situation: Situation) -> Spares:
    """What is known of the spare nodes of the current attempt."""
    membership = situation.membership
    return Spares() if membership is None or membership.spares is None else membership.spares


def waiting_spares(situation: Situation) -> list[SparePod]:
    """The spares that wait to be named, or are to be created."""
    return list(spares_of_attempt(situation).waiting or ())


def ready_spares(situation: Situation, lost: Iterable[int] = ()) -> tuple[int, ...]:
    """Numbers of the spares that could take a place now, the first one that was made first.

    Args:
        situation: what is known.
        lost: ordinals whose places are to be taken. What evicts a pod, or makes it lost, reaches the other pods of
            its node as well.
    """
    gone = [situation.attempt.nodes[each] for each in lost if each < len(situation.attempt.nodes)]
    leaving = {pod.node_name for pod in gone if pod is not None and pod.disruption is not None}
    leaving |= nodes_lost(situation.observed.pods)
    return tuple(
        sorted(
            number
            for number, pod in situation.attempt.spares.items()
            if node_state(pod) is NodeState.RUNNING and pod.disruption is None and pod.node_name not in leaving
        )
    )


def without_spares(membership: Membership, named: Iterable[int]) -> Spares | None:
    """The spares of a membership without those that become nodes; those without a node of their own go on waiting."""
    gone, known = frozenset(named), membership.spares
    if known is None or not gone:
        return known
    return known.model_copy(update={"waiting": [each for each in known.waiting or () if each.number not in gone]})


def may_have_spares(situation: Situation) -> bool:
    """Whether spares can be created now: all nodes train, and none is to join or to come back."""
    membership = situation.membership
    calm = membership is not None and membership.rejoining is None and situation.status.pods_created
    return calm and are_training(situation) and not joining(situation)


def without_room(situation: Situation) -> bool:
    """Whether a node that is to join, or to come back, finds no room, which spares may take up."""
    membership = situation.membership
    away = () if membership is None or membership.rejoining is None else situation.attempt.nodes
    awaited = (*joining(situation).values(), *away)
    # A refusal outlasts the wish for what was refused: without a pod that is missing it says nothing.
    refused = bool(situation.observed.rejections) and any(pod is None for pod in awaited)
    return refused or any(pod is not None and not pod.scheduled and pod.obstacle is not None for pod in awaited)


def next_number(situation: Situation) -> int:
    """A number that no spare of the attempt has had, even if the status was erased."""
    own = (parse_spare_pod_name(situation.job.name, pod.name) for pod in situation.observed.pods)
    seen = [each.number for each in own if each is not None and each.attempt == situation.attempt.number]
    seen = [number for number in seen if number < _MOST]
    named = {} if situation.membership is None else spares_of(situation.membership)
    return max(spares_of_attempt(situation).last, *seen, *named.values(), 0) + 1


def name_fits(situation: Situation, number: int) -> bool:
    """Whether the pod's name can be a host name."""
    return number <= _MOST and is_host_name(spare_pod_name(situation.job.name, situation.attempt.number, number))


def has_failed(pod: PodRecord | None) -> bool:
    """Whether a spare that was created cannot be named any more."""
    return pod is None or pod.node_lost or node_state(pod) in (NodeState.FAILED, NodeState.SUCCEEDED)


def replaced_at(situation: Situation, pod: PodRecord | None) -> datetime:
    """When another spare replaces one that has failed; one that ended by itself is kept until then for its log."""
    ended = None if pod is None or pod.deletion_time is not None or pod.node_lost else pod.trainer
    if not isinstance(ended, Terminated) or ended.seen is None:
        return situation.now
    return ended.seen + wait_after(situation, spares_of_attempt(situation).failures + 1)


def wait_after(situation: Situation, failures: int) -> timedelta:
    """How long the next spare is waited with after so many failures in a row."""
    if failures < 1:
        return timedelta()
    doubled: int = 1 << min(failures - 1, 12)
    return min(_FIRST_WAIT * doubled, longest_wait(situation))


def longest_wait(situation: Situation) -> timedelta:
    """The longest that the next spare is waited with."""
    return max(timedelta(seconds=situation.spec.restart.max_backoff_seconds), _FIRST_WAIT)


def asked_for_at(situation: Situation, known: Spares) -> datetime:
    """When the next spare may be created, after what is known of the earlier ones."""
    return situation.now if known.time is None else known.time + wait_after(situation, known.failures - 1)


def spare_moments(situation: Situation) -> tuple[datetime, ...]:
    """When the passing of time alone changes what is to be done about spares."""
    if situation.spec.elastic is None or not situation.spec.elastic.spare_nodes or not may_have_spares(situation):
        return ()
    pods = (situation.attempt.spares.get(each.number) for each in waiting_spares(situation))
    failed = (replaced_at(situation, pod) for pod in pods if pod is not None and has_failed(pod))
    again = (situation.now + TRY_AGAIN_AFTER,) if situation.spares_refused else ()
    return (asked_for_at(situation, spares_of_attempt(situation)), *failed, *again)
