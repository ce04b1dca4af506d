"""Creating the pods of an attempt, all of them or none."""

from collections.abc import Sequence
from datetime import datetime

from ddpjob_core.api.kubernetes import ObjectName, object_name
from ddpjob_core.api.names import pod_name, spare_pod_name
from ddpjob_core.children.actions import Create, CreatePod
from ddpjob_core.children.deletions import abandoned_pods, stray_pods
from ddpjob_core.children.network_policy import needed_network_policy
from ddpjob_core.children.service import build_service
from ddpjob_core.children.shared import SharedNames, shared_names, unwatched_children
from ddpjob_core.observations.abandoned import abandoned_pods_given_up_at, abandoned_pods_run
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.node_lost import nodes_lost
from ddpjob_core.observations.refusals import TRY_AGAIN_AFTER, taken_names
from ddpjob_core.observations.restart_backoff import not_before
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision


def creating(situation: Situation) -> Decision | None:
    """An attempt whose pods have not all been created, or pods of an abandoned one that have come late."""
    status = situation.status
    abandoned = abandoned_pods(situation)
    if status.pods_created:
        # A request of a former leader may take effect after its successor has gone on to the next attempt.
        return Decision(status, abandoned) if abandoned else None
    due = not_before(status, situation.spec.restart)
    if abandoned_pods_run(situation) or (due is not None and situation.now < due):
        waits = (*abandoned_pods_given_up_at(situation), *((due,) if due is not None else ()))
        return Decision(status, abandoned, requeue_at=waits)
    children = _allowed((*_shared_children(situation), *_pods(situation)), situation)
    if children:
        blocked = bool(taken_names(situation)) or bool(situation.observed.rejections)
        again = (situation.now + TRY_AGAIN_AFTER,) if blocked else ()
        fresh = situation.job.status is None and not blocked
        if blocked and situation.attempt.present:
            # Its deadlines count although it only waits for the others.
            status = status.model_copy(update=_begun(situation))
        if taken_names(situation):
            return Decision(status, abandoned, requeue_at=again)
        strays = () if blocked else stray_pods(situation)
        return Decision(status, (*abandoned, *strays, *children), unwritten=fresh, requeue_at=again)
    created = status.model_copy(update={"pods_created": True, **_begun(situation)})
    return Decision(created, abandoned, transition=True)


def _begun(situation: Situation) -> dict[str, datetime]:
    """The times of the status from which deadlines count, unless they count already."""
    status, now = situation.status, situation.now
    return {"start_time": status.start_time or now, "attempt_start_time": status.attempt_start_time or now}


def _shared_children(situation: Situation) -> tuple[Create, ...]:
    job, spec = situation.job, situation.spec
    service = [build_service(job, spec)] if situation.observed.service is None else []
    policy = needed_network_policy(situation)
    before = tuple(Create(manifest) for manifest in (*service, *([policy] if policy is not None else [])))
    return (*before, *unknown_children(situation))


def unknown_children(situation: Situation) -> tuple[Create, ...]:
    """Creations of what pods need and no watch shows, except for what this process has created or found already.

    Creating what exists costs one request per attempt after the operator has been restarted.
    """
    names = _shared_names(situation)
    children = unwatched_children(situation.job, situation.spec, (names.launcher,), (names.ssh_key,))
    return tuple(Create(manifest) for manifest in children if object_name(manifest) not in situation.observed.known)


def _allowed(children: tuple[Create | CreatePod, ...], situation: Situation) -> tuple[Create | CreatePod, ...]:
    """After a refusal only what was refused is requested again, and nothing else before that succeeds.

    A pod without its launcher would start only to fail, and a used-up quota refuses every pod alike.
    """
    refused = {rejection.object for rejection in situation.observed.rejections}
    if not refused:
        return children
    again = tuple(child for child in children if _object_of(child) in refused)
    return again or children[:1]


def _object_of(child: Create | CreatePod) -> ObjectName:
    return ObjectName("Pod", child.name) if isinstance(child, CreatePod) else object_name(child.manifest)


def _pods(situation: Situation) -> tuple[CreatePod, ...]:
    states = situation.attempt.states()
    return pods_of([ordinal for ordinal, state in enumerate(states) if state is NodeState.MISSING], situation)


def pods_of(ordinals: Sequence[int], situation: Situation) -> tuple[CreatePod, ...]:
    """Creations of the pods of these ordinals in the current attempt."""
    if not ordinals:
        return ()
    job, number, width = situation.job.name, situation.attempt.number, situation.spec.most_nodes
    membership = situation.membership
    members = {ordinal: 0 if membership is None else membership.member(ordinal) for ordinal in ordinals}
    names = {ordinal: pod_name(job, number, ordinal, width, member) for ordinal, member in members.items()}
    rest = (_avoided(situation), membership, _shared_names(situation))
    return tuple(CreatePod(name, number, ordinal, *rest) for ordinal, name in names.items())


def spare_pods_of(numbers: Sequence[int], situation: Situation) -> tuple[CreatePod, ...]:
    """Creations of the pods of these spare nodes."""
    job, number = situation.job.name, situation.attempt.number
    avoided, shared = _avoided(situation), _shared_names(situation)
    return tuple(
        CreatePod(spare_pod_name(job, number, each), number, 0, avoided, situation.membership, shared, spare=each)
        for each in numbers
    )


def _avoided(situation: Situation) -> tuple[str, ...]:
    """Nodes of the cluster that are lost, and the one that a slow rank was moved away from."""
    replaced = situation.status.replaced
    slow = frozenset[str]() if replaced is None else {replaced.node_name}
    return tuple(sorted(nodes_lost(situation.observed.pods) | slow))


def _shared_names(situation: Situation) -> SharedNames:
    return shared_names(situation.job, situation.spec, situation.observed.seed, situation.attempt.present)
