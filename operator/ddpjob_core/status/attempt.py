"""The conditions PodsScheduled, RendezvousReady and Training: where the current attempt stands."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.observed import Rejection, RejectionKind
from ddpjob_core.observations.obstacle import obstacle_of
from ddpjob_core.observations.refusals import taken_names
from ddpjob_core.observations.rendezvous import waiting_for_node_0
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.startup import has_started, startup_due
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.obstacles import NAMED_OBJECTS, obstacles
from ddpjob_core.status.rendezvous_ready import rendezvous_ready


def attempt_facts(situation: Situation, status: DDPJobStatus, *, steps: bool) -> tuple[Fact, ...]:
    """The conditions of an attempt that is neither finished nor suspended.

    Args:
        situation: what is known.
        status: what was decided; it may already name the next attempt.
        steps: whether this attempt has reported a step.
    """
    if status.attempt != situation.attempt.number or not _has_pods(situation, status):
        reason, message = _waiting(situation, status)
        return (
            Fact(ConditionType.PODS_SCHEDULED, "False", reason, message),
            Fact(ConditionType.RENDEZVOUS_READY, "False", reason, message),
            Fact(ConditionType.TRAINING, "False", reason, message),
        )
    return (
        _pods_scheduled(situation),
        rendezvous_ready(situation),
        _training(situation, steps=steps),
    )


def _has_pods(situation: Situation, status: DDPJobStatus) -> bool:
    return status.pods_created or bool(situation.attempt.present)


def _waiting(situation: Situation, status: DDPJobStatus) -> tuple[str, str]:
    taken = taken_names(situation)
    if taken:
        name, owner = next(iter(taken.items()))
        return "NameTaken", f"{name} exists and belongs to {owner}; waiting until it is deleted"
    if situation.observed.rejections:
        # Sorted by name: the answers arrive in any order, which must not look like a change.
        refused = sorted(situation.observed.rejections, key=lambda rejection: rejection.object)
        listed = grouped_by_message(
            [(str(rejection.object), rejection.message) for rejection in refused],
            NAMED_OBJECTS,
            causes=[_cause(rejection) for rejection in refused],
        )
        return refused[0].kind.value, f"the API server refuses to create {listed}"
    if (status.restarts.counted or status.restarts.ignored) and not status.holds(ConditionType.SUSPENDED):
        return "Restarting", f"attempt {status.attempt} starts when the pods of the previous one have stopped"
    return "CreatingPods", f"the pods of attempt {status.attempt} are being created"


def _cause(rejection: Rejection) -> tuple[str, str]:
    # The API server's own message names the object, although the cause is usually the same for all pods.
    own_words = rejection.kind is not RejectionKind.NAME_TAKEN
    return rejection.kind.value, rejection.object.kind if own_words else rejection.message


def _pods_scheduled(situation: Situation) -> Fact:
    kind = ConditionType.PODS_SCHEDULED
    if situation.observed.rejections or taken_names(situation):
        return Fact(kind, "False", *_waiting(situation, situation.status))
    waiting = [pod for pod in situation.attempt.present if not pod.scheduled and node_state(pod) is NodeState.PENDING]
    desired = len(situation.attempt.nodes)
    if not waiting:
        return Fact(kind, "True", "AllPodsScheduled", f"{desired} of {desired} pods have a node")
    return Fact(
        kind,
        "False",
        next((obstacle.reason for pod in waiting if (obstacle := obstacle_of(pod))), "WaitingForScheduler"),
        "; ".join([f"{desired - len(waiting)}/{desired} pods have a node", *obstacles(situation, tuple(waiting))]),
    )


def _training(situation: Situation, *, steps: bool) -> Fact:
    kind = ConditionType.TRAINING
    if steps:
        return Fact(kind, "True", "StepsReported", "rank 0 reports steps")
    states = situation.attempt.states()
    if waiting_for_node_0(situation):
        return Fact(kind, "False", *_not_met(situation))
    if all(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in states):
        if _is_late(situation):
            return Fact(
                kind, "False", "StartupDeadlineExceeded", "rank 0 has reported no step within spec.startupDeadline"
            )
        message = (
            "all nodes are running, but rank 0 has not reported a step: the program is still starting, "
            f"or it does not report its steps; {situation.advice.see_output(situation.job.name)}"
        )
        return Fact(kind, "Unknown", "NoProgressReported", message)
    if _is_late(situation):
        return Fact(kind, "False", "StartupDeadlineExceeded", "not all nodes were up within spec.startupDeadline")
    return Fact(kind, "False", "WaitingForNodes", "not all nodes are up")


def _not_met(situation: Situation) -> tuple[str, str]:
    if _is_late(situation):
        return "StartupDeadlineExceeded", "not all nodes could reach each other within spec.startupDeadline"
    return "WaitingForRendezvous", "not all nodes can reach each other"


def _is_late(situation: Situation) -> bool:
    due = startup_due(situation)
    return due is not None and situation.now >= due and not has_started(situation)
