"""What prevents pods from running, and what to do about it."""

from typing import Final

from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.obstacle import CONFIG_REASON, IMAGE_REASONS, UNSCHEDULABLE, obstacle_of
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.unmounted import USUAL_MOUNT
from ddpjob_core.status.host_ports import ports_taken

NAMED_OBJECTS: Final = 3
"""Maximum number of objects that a message names; others are counted."""
_CLAIM_HINT: Final = "check spec.checkpoint.claimName and the volumes of spec.template against kubectl get pvc"
_HINTS: Final = {
    **dict.fromkeys(IMAGE_REASONS, "check spec.trainer.image and that the nodes can pull it"),
    CONFIG_REASON: "check the ConfigMaps and Secrets that spec.trainer.env and envFrom name",
    UNSCHEDULABLE: "check spec.trainer.resources, nodeSelector and tolerations against kubectl get nodes",
}


def obstacles(situation: Situation, pods: tuple[PodRecord, ...]) -> tuple[str, ...]:
    """What prevents these pods from running, as a part of a message; none for no pods."""
    if not pods:
        return ()
    return (grouped_by_message([(pod.name, _sentence(situation, pod)) for pod in pods], NAMED_OBJECTS, "pods"),)


def _sentence(situation: Situation, pod: PodRecord) -> str:
    obstacle = obstacle_of(pod)
    if obstacle is None and pod.unmounted_since is not None and situation.now >= pod.unmounted_since + USUAL_MOUNT:
        return f"waiting for its volumes or its network: kubectl describe pod {pod.name} shows for which"
    if obstacle is None:
        return "starting" if pod.scheduled else "waiting for a node"
    ports = ports_taken(situation, obstacle.message)
    if ports is not None:
        return f"{obstacle.reason}: {ports}; the scheduler says: {obstacle.message}"
    hint = _CLAIM_HINT if "persistentvolumeclaim" in obstacle.message else _HINTS.get(obstacle.reason)
    return ": ".join(part for part in (obstacle.reason, obstacle.message, hint) if part)
