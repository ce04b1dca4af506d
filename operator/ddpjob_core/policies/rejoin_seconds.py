"""spec.elastic.rejoinSeconds: a node that is lost comes back in another pod, and the other nodes keep their processes.

That a node was lost is written first, with the generation that names its next pod, and counted once. Then the pod is
created, unless a spare has the place, and told to the others once nothing runs in the lost one. If the cluster has no
room for it, the nodes that are left go on in their pods with another size. Whatever else keeps the ranks from going on,
all nodes start again. Neither is counted a second time.
"""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.constants import MAX_ATTEMPT
from ddpjob_core.api.restart import RestartAction
from ddpjob_core.api.spec import Elastic
from ddpjob_core.api.status import Failure, Membership, Rejoining, Restarts
from ddpjob_core.children.actions import Action, DeleteStray
from ddpjob_core.children.deletions import ABANDONED_GRACE_SECONDS
from ddpjob_core.observations.failed_attempt import cause_known_at, find_failure
from ddpjob_core.observations.membership import resized
from ddpjob_core.observations.rejoining import (
    absent,
    can_rejoin,
    have_rejoined,
    left_together,
    lost_nodes,
    rejoin_due,
    rejoining,
    without,
)
from ddpjob_core.observations.root_cause import POD_MISSING
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.create import pods_of, unknown_children
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.restart import abandon, next_attempt_after, restarts_after
from ddpjob_core.policies.restart_rules import action_for

AT_MOST_EVERY: Final = timedelta(seconds=30)
"""Least time between two losses of which no budget limits how many there are: restarts have a brake for these."""


def rejoin_seconds(situation: Situation) -> Decision | None:
    """An elastic job that has lost nodes, or waits for them."""
    membership, known, elastic = situation.membership, rejoining(situation), situation.spec.elastic
    if membership is None or elastic is None:
        return None
    return _lost(situation, membership) if known is None else _awaited(situation, membership, known, elastic)


def _awaited(situation: Situation, membership: Membership, known: Rejoining, elastic: Elastic) -> Decision | None:
    """What becomes of nodes that are to come back."""
    if have_rejoined(situation):
        return _written(situation, membership.model_copy(update={"rejoining": None}))
    failure = find_failure(situation)
    if failure is not None:
        further = without(situation, membership, lost_nodes(situation)) if lost_nodes(situation) else None
        if further is None and _ends_the_job(situation, failure):
            return abandon(situation, failure)
        return _all_again(situation, failure.message) if further is None else _written(situation, further)
    due = rejoin_due(situation)
    if due is not None and situation.now >= due:
        return _too_late(situation, membership, elastic)
    if not known.created and not absent(situation):
        created = known.model_copy(update={"created": True})
        return _written(situation, membership.model_copy(update={"rejoining": created}))
    return None


def _too_late(situation: Situation, membership: Membership, elastic: Elastic) -> Decision:
    fewer = left_together(situation, elastic)
    if fewer is not None:
        return _with_fewer(situation, membership, fewer)
    seconds = elastic.rejoin_seconds
    return _all_again(situation, f"the ranks did not go on within spec.elastic.rejoinSeconds ({seconds} s)")


def _ends_the_job(situation: Situation, failure: Failure) -> bool:
    """Whether a rule fails the job for what happened while a node was away, and did not come of that."""
    known = cause_known_at(situation, failure) is None
    return known and action_for(failure, situation.spec.restart.rules) is RestartAction.FAIL


def rejoining_actions(situation: Situation) -> tuple[Action, ...]:
    """The creation of the pods that take the places of lost nodes."""
    pods = pods_of(absent(situation), situation)
    if not pods:
        return ()
    failure, lost = situation.status.failure, ""
    if failure is not None and failure.reason == POD_MISSING and failure.attempt == situation.attempt.number:
        lost = failure.pod or ""
    strays = _strays([lost] if lost and lost not in situation.attempt.names else [])
    return (*strays, *unknown_children(situation), *pods)


def _strays(names: list[str]) -> tuple[DeleteStray, ...]:
    """Deletions of lost pods that are not seen: one that has only lost its label may still run."""
    return tuple(DeleteStray(name, ABANDONED_GRACE_SECONDS) for name in names)


def _lost(situation: Situation, membership: Membership) -> Decision | None:
    if not can_rejoin(situation):
        return None
    lost = lost_nodes(situation)
    failure = find_failure(situation) if lost else None
    further = without(situation, membership, lost) if lost else None
    if failure is None or further is None:
        return None
    restarts = restarts_after(situation, failure)
    if not isinstance(restarts, Restarts) or _is_too_soon(situation, membership, restarts):
        return None
    status = situation.status.model_copy(update={"membership": further, "restarts": restarts, "failure": failure})
    attempt = situation.attempt
    return Decision(
        status, _strays([attempt.names[each] for each in lost if attempt.nodes[each] is None]), transition=True
    )


def _is_too_soon(situation: Situation, membership: Membership, restarts: Restarts) -> bool:
    """Whether losses that are not counted follow each other quickly."""
    before, rules = situation.status.failure, situation.spec.restart.rules
    if restarts.counted > situation.status.restarts.counted or membership.time is None or not membership.members:
        return False
    if before is None or action_for(before, rules) is not RestartAction.IGNORE:
        return False
    return situation.now < membership.time + AT_MOST_EVERY


def _written(situation: Situation, membership: Membership) -> Decision:
    return Decision(situation.status.model_copy(update={"membership": membership}), transition=True)


def _with_fewer(situation: Situation, membership: Membership, nodes: int) -> Decision:
    """The nodes that are left train in their pods; the others join them as soon as there is room."""
    smaller = resized(situation, membership, nodes).model_copy(update={"rejoining": None})
    failure = situation.status.failure
    if failure is not None:
        left = "1 node that is left goes" if nodes == 1 else f"{nodes} nodes that are left go"
        why = f"the cluster has no room for another pod: the {left} on from the last checkpoint"
        failure = failure.model_copy(update={"message": f"{failure.message}; {why}"[:2048]})
    status = situation.status.model_copy(update={"membership": smaller, "failure": failure})
    return Decision(status, transition=True)


def _all_again(situation: Situation, why: str) -> Decision:
    """The next attempt; that the node was lost has been counted."""
    failure, number = situation.status.failure, situation.attempt.number
    if failure is None or failure.attempt != number:
        failure = Failure(attempt=number, reason=POD_MISSING, message="a node was lost")
    if situation.status.attempt >= MAX_ATTEMPT:
        return abandon(situation, failure)
    told = failure.model_copy(update={"message": f"{failure.message}; all nodes start again: {why}"[:2048]})
    return next_attempt_after(situation, told, situation.status.restarts)
