"""What prevents one pod from running, and the kubelet's reasons for it."""

from typing import Final

from ddpjob_core.observations.observed import PodRecord, Waiting

USUAL_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that only waits for its turn: nothing prevents it from starting."""
IMAGE_REASONS: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
"""Reasons of a container whose image is not available on its node."""


def obstacle_of(pod: PodRecord) -> Waiting | None:
    """What prevents a pod from running, None if it starts as usual."""
    if pod.obstacle is not None:
        return pod.obstacle
    return pod.trainer if isinstance(pod.trainer, Waiting) and pod.trainer.reason not in USUAL_REASONS else None
