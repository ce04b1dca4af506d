"""status.nodes: the pods of the current attempt, counted by state."""

from ddpjob_core.api.ordinals import format_ordinals
from ddpjob_core.api.spec import CleanPodPolicy
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Nodes
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.suspension import is_stopping


def count_nodes(situation: Situation, status: DDPJobStatus) -> Nodes:
    """The counts for a decided status, which may already name the next attempt."""
    states = situation.attempt.states() if status.attempt == situation.attempt.number else ()
    # Of an elastic job as many are desired as it asks for, and those count that train together.
    desired, ready = situation.spec.nodes, states.count(NodeState.RUNNING)
    if status.holds(ConditionType.SUSPENDED) or is_stopping(status):
        # However they exit, they were asked to: it is neither a failure nor the end of the training.
        return Nodes(desired=desired, ready=ready)
    if status.finished and situation.spec.clean_pod_policy is not CleanPodPolicy.NONE:
        # They are deleted as soon as this has been written.
        ready = 0
    succeeded = [ordinal for ordinal, state in enumerate(states) if state is NodeState.SUCCEEDED]
    missing = states.count(NodeState.MISSING) if status.pods_created else 0
    return Nodes(
        desired=desired,
        ready=ready,
        succeeded=len(succeeded),
        failed=states.count(NodeState.FAILED) + missing,
        succeeded_ordinals=format_ordinals(succeeded) or None,
    )


def count_replicas(situation: Situation, status: DDPJobStatus) -> int:
    """Pods of the attempt that run or will, as a ReplicaSet counts its own: an autoscaler divides by them.

    Args:
        situation: what is known of the pods.
        status: what was decided; it may already name the next attempt, which has none.
    """
    if status.attempt != situation.attempt.number:
        return 0
    states = (*situation.attempt.states(), *map(node_state, situation.attempt.others.values()))
    return states.count(NodeState.PENDING) + states.count(NodeState.RUNNING)


def nodes_left(situation: Situation, finished: DDPJobStatus) -> Nodes | None:
    """The counts of a finished job, without pods that have ended since or are being deleted."""
    nodes = finished.nodes
    if nodes is None or nodes.ready == 0 or finished.attempt != situation.attempt.number:
        return nodes
    running = situation.attempt.states().count(NodeState.RUNNING)
    return nodes.model_copy(update={"ready": min(nodes.ready, running)})
