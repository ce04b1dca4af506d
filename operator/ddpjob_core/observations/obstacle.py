"""What prevents one pod from running, and the reasons that the kubelet and the scheduler give for it."""

from typing import Final

from ddpjob_core.observations.observed import PodRecord, Waiting

USUAL_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that only waits for its turn: nothing prevents it from starting."""
IMAGE_REASONS: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
"""Reasons of a container whose image is not available on its node."""
CONFIG_REASON: Final = "CreateContainerConfigError"
"""Reason of a container whose ConfigMaps or Secrets are missing."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of a pod for which the scheduler finds no node."""
START_ERROR: Final = "StartError"
START_REASONS: Final = frozenset({START_ERROR, "ContainerCannotRun"})
"""Reasons of a container that has ended because the runtime could not start its program."""


def obstacle_of(pod: PodRecord) -> Waiting | None:
    """What prevents a pod from running, None if it starts as usual."""
    if pod.obstacle is not None:
        return pod.obstacle
    return pod.trainer if isinstance(pod.trainer, Waiting) and pod.trainer.reason not in USUAL_REASONS else None
