"""spec.elastic: the size of a job changes while it trains.

Which nodes are members is written first. Then it is announced to them, and nodes that the job no longer asks for are
asked to stop; both may be repeated, by another operator as well.
"""

from ddpjob_core.api.names import parse_spare_pod_name
from ddpjob_core.api.status import Membership
from ddpjob_core.children.actions import Action, AnnounceMembership
from ddpjob_core.children.deletions import deletions, strays_beyond
from ddpjob_core.observations.membership import (
    are_training,
    ended_by_itself,
    first_membership,
    have_ended,
    join_again_at,
    join_at,
    joining,
    leaving,
    outdated,
    ready_to_join,
    resized,
    running,
    shrink_at,
)
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.observations.rejoining import rejoining, stopping
from ddpjob_core.observations.situation import Situation, membership_of
from ddpjob_core.policies.create import pods_of, unknown_children
from ddpjob_core.policies.decision import Decision
from ddpjob_core.policies.rejoin_seconds import rejoining_actions
from ddpjob_core.policies.spare_nodes import spare_actions


def elastic(situation: Situation) -> Decision | None:
    """An elastic job whose members are to be others than the status says."""
    if situation.spec.elastic is None:
        return None
    written = membership_of(situation.job.status, situation.spec, situation.attempt.number)
    if situation.membership is None:
        # Before the first pod: were spec.nodes to change meanwhile, pods of one attempt would know different sizes.
        return _written(situation, first_membership(situation), strays_beyond(situation))
    nodes = _nodes(situation)
    if nodes != situation.membership.nodes:
        return _written(situation, resized(situation, situation.membership, nodes))
    return None if written is not None else _written(situation, situation.membership)


def _written(situation: Situation, membership: Membership, actions: tuple[Action, ...] = ()) -> Decision:
    return Decision(situation.status.model_copy(update={"membership": membership}), actions, transition=True)


def _nodes(situation: Situation) -> int:
    """How many nodes are to train together now."""
    size, asked = len(situation.attempt.nodes), situation.spec.nodes
    if rejoining(situation) is not None:
        # Two changes at a time are one too many for the ranks.
        return size
    without_room = shrink_at(situation)
    if without_room is not None and situation.now >= without_room:
        return min(asked, running(situation))
    if not situation.status.pods_created or have_ended(situation):
        return size
    if asked <= size:
        return asked
    if not are_training(situation):
        return size
    alone_at = join_at(situation)
    return size if alone_at is not None and situation.now < alone_at else size + ready_to_join(situation)


def member_actions(situation: Situation) -> tuple[Action, ...]:
    """What makes the pods of an elastic job's attempt follow its membership.

    Args:
        situation: in which the members are those of the status that has been written.
    """
    membership = situation.membership
    if membership is None or situation.spec.suspend or not situation.status.pods_created or have_ended(situation):
        return ()
    lagging = outdated(situation)
    # The ranks of a node that was asked to stop save together with all others, which are not to go on before that.
    heard = () if stopping(situation) else lagging
    announced = (AnnounceMembership(pod.name, pod.uid, membership, _place(situation, pod)) for pod in heard)
    # One that is asked to stop may take the others with it: they have to know first that it leaves them.
    gone = () if lagging else deletions(leaving(situation))
    return (*announced, *gone, *rejoining_actions(situation), *_joining(situation), *spare_actions(situation))


def _place(situation: Situation, pod: PodRecord) -> int | None:
    """The ordinal of the node that the pod of a spare has become; None for other pods."""
    names = situation.attempt.names
    spare = parse_spare_pod_name(situation.job.name, pod.name) is not None
    return names.index(pod.name) if spare and pod.name in names else None


def _joining(situation: Situation) -> tuple[Action, ...]:
    """Pods for the nodes that were asked for. Ranks have no gap, so that one that fails keeps all above it waiting.

    One that has failed by itself is kept for a while, so that its log can be read.
    """
    nodes = joining(situation)
    gone = [pod for pod in nodes.values() if pod is not None and _is_replaced(situation, pod)]
    pods = pods_of([ordinal for ordinal, pod in nodes.items() if pod is None], situation)
    # The pods that train have been given theirs by an operator that may be gone.
    return (*deletions(gone), *(unknown_children(situation) if pods else ()), *pods)


def _is_replaced(situation: Situation, pod: PodRecord) -> bool:
    if ended_by_itself(pod) is not None:
        due = join_again_at(situation, pod)
        return due is not None and situation.now >= due
    # It was ended from outside, as by an eviction or an earlier change of size.
    return isinstance(pod.trainer, Terminated) or pod.node_lost or pod.disruption is not None or pod.phase == "Failed"
