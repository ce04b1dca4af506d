"""The conditions PodsScheduled, RendezvousReady and Training, and the phase: where the current attempt stands."""

from ddpjob_core.api.constants import LABEL_JOB
from ddpjob_core.api.spec import Launcher
from ddpjob_core.api.status import ConditionType, DDPJobStatus, Phase
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import told_once
from ddpjob_core.observations.observed import PodRecord, Waiting
from ddpjob_core.observations.refusals import taken_names
from ddpjob_core.observations.rendezvous import waiting_for_node_0
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.startup import has_started, startup_due
from ddpjob_core.observations.suspension import RESUMED, STOPPING
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.host_ports import ports_taken

_NAMED_OBJECTS = 3
_USUAL_REASONS = ("", "ContainerCreating", "PodInitializing")
_IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_CLAIM_HINT = "check spec.checkpoint.claimName and the volumes of spec.template against kubectl get pvc"
_HINTS = {
    **dict.fromkeys(_IMAGE_REASONS, "check spec.trainer.image and that the nodes can pull it"),
    "CreateContainerConfigError": "check the ConfigMaps and Secrets that spec.trainer.env and envFrom name",
    "Unschedulable": "check spec.trainer.resources, nodeSelector and tolerations against kubectl get nodes",
}


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
        return "NameTaken", f"{name} exists and belongs to {owner}; waiting until it is gone"
    if situation.observed.rejections:
        # In the order of their names: the answers come in any order, which is no news.
        refused = sorted(situation.observed.rejections, key=lambda rejection: rejection.object)
        told = told_once([(rejection.object, rejection.message) for rejection in refused], _NAMED_OBJECTS)
        return refused[0].kind.value, f"the API server refuses to create {told}"
    if (status.restarts.counted or status.restarts.ignored) and not status.holds(ConditionType.SUSPENDED):
        return "Restarting", f"attempt {status.attempt} starts when the pods of the one before have stopped"
    return "CreatingPods", f"the pods of attempt {status.attempt} are being created"


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
        next((obstacle.reason for pod in waiting if (obstacle := _obstacle_of(pod))), "WaitingForScheduler"),
        f"{desired - len(waiting)}/{desired} pods have a node; {_obstacles(situation, tuple(waiting))}",
    )


def rendezvous_ready(situation: Situation) -> Fact:
    """The condition RendezvousReady: which pods are not up, and why, or which nodes cannot reach node 0."""
    kind = ConditionType.RENDEZVOUS_READY
    states = situation.attempt.states()
    up = sum(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in states)
    if up == len(states) and (waits := waiting_for_node_0(situation)):
        first = situation.attempt.names[0]
        if situation.spec.launcher is Launcher.MPIRUN:
            hint = "check that node's log, the cluster's DNS and its network policies"
            message = f"{up}/{len(states)} nodes are up, node 0 cannot reach all others; {waits[0].message}: {hint}"
            return Fact(kind, "False", waits[0].reason.value, message)
        told = told_once(
            [(situation.attempt.names[wait.ordinal], wait.message) for wait in waits], _NAMED_OBJECTS, "pods"
        )
        hint = f"check kubectl logs {first}, the cluster's DNS and its network policies"
        message = f"{up}/{len(states)} nodes are up, {len(waits)} cannot reach node 0; {told}: {hint}"
        return Fact(kind, "False", waits[0].reason.value, message)
    if up == len(states):
        return Fact(kind, "True", "AllNodesUp", f"{up}/{len(states)} nodes are up")
    waiting = tuple(pod for pod in situation.attempt.present if node_state(pod) is NodeState.PENDING)
    reason = next((obstacle.reason for pod in waiting if (obstacle := _obstacle_of(pod))), "WaitingForPods")
    return Fact(
        kind, "False", reason, f"{up}/{len(states)} nodes are up; {_obstacles(situation, waiting)}".removesuffix("; ")
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
        selector = f"{LABEL_JOB}={situation.job.name}"
        message = (
            "all nodes run, and rank 0 has not reported a step: the program is still starting, "
            f"or it is one that does not report its steps; kubectl logs -l {selector} shows what it does"
        )
        return Fact(kind, "Unknown", "NoProgressReported", message)
    if _is_late(situation):
        return Fact(kind, "False", "StartupDeadlineExceeded", "not all nodes are up within spec.startupDeadline")
    return Fact(kind, "False", "WaitingForNodes", "not all nodes are up")


def _not_met(situation: Situation) -> tuple[str, str]:
    if _is_late(situation):
        return "StartupDeadlineExceeded", "the nodes have not met within spec.startupDeadline"
    return "WaitingForRendezvous", "not all nodes reach each other"


def _is_late(situation: Situation) -> bool:
    due = startup_due(situation)
    return due is not None and situation.now >= due and not has_started(situation)


def _obstacles(situation: Situation, pods: tuple[PodRecord, ...]) -> str:
    return told_once([(pod.name, _obstacle(situation, pod)) for pod in pods], _NAMED_OBJECTS, "pods")


def _obstacle_of(pod: PodRecord) -> Waiting | None:
    """What keeps a pod from running, or None where it is on the usual way."""
    if pod.obstacle is not None:
        return pod.obstacle
    return pod.trainer if isinstance(pod.trainer, Waiting) and pod.trainer.reason not in _USUAL_REASONS else None


def _obstacle(situation: Situation, pod: PodRecord) -> str:
    obstacle = _obstacle_of(pod)
    if obstacle is None:
        return "starting" if pod.scheduled else "waiting for a node"
    ports = ports_taken(situation, obstacle.message)
    if ports is not None:
        return f"{obstacle.reason}: {ports}; the scheduler says: {obstacle.message}"
    hint = _CLAIM_HINT if "persistentvolumeclaim" in obstacle.message else _HINTS.get(obstacle.reason)
    told = ": ".join(part for part in (obstacle.reason, obstacle.message) if part)
    return f"{told}: {hint}" if hint else told


def phase_of(status: DDPJobStatus) -> Phase:
    """The one word for people."""
    for condition, phase in (
        (ConditionType.SUCCEEDED, Phase.SUCCEEDED),
        (ConditionType.FAILED, Phase.FAILED),
        (ConditionType.SUSPENDED, Phase.SUSPENDED),
    ):
        if status.holds(condition):
            return phase
    suspended = status.condition(ConditionType.SUSPENDED)
    if suspended is not None and suspended.reason == STOPPING:
        return Phase.SUSPENDING
    if status.holds(ConditionType.RENDEZVOUS_READY):
        if status.holds(ConditionType.TRAINING_STALLED):
            return Phase.STALLED
        return Phase.RUNNING
    resumed_since = suspended.last_transition_time if suspended is not None and suspended.reason == RESUMED else None
    restarted = status.restarts.last_time
    if restarted is not None and (resumed_since is None or resumed_since <= restarted):
        return Phase.RESTARTING
    return Phase.STARTING if status.holds(ConditionType.PODS_SCHEDULED) else Phase.PENDING
