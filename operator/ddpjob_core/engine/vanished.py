"""Pods that were gone before anything looked at how they had ended, or why they went."""

from ddpjob_core.observations.observed import PodRecord, Terminated


class VanishedPods:
    """How those pods of a job's newest attempt ended that no longer exist, or that Kubernetes was about to remove them.

    The kubelet reports the end of an evicted pod and removes it within milliseconds. A pod evicted without grace
    or whose node was removed is gone as soon as its condition says so. This helps, but nothing may rely on it:
    a restarted operator knows nothing of it.
    """

    def __init__(self) -> None:
        """No pod has vanished yet."""
        self._pods: dict[str, PodRecord] = {}

    def saw(self, pod: PodRecord, *, gone: bool) -> None:
        """A pod of the job is in this state, or was when it was last seen."""
        if pod.attempt is None:
            return
        newest = max((known.attempt or 0 for known in self._pods.values()), default=pod.attempt)
        if pod.attempt > newest:
            self._pods.clear()
        if gone and pod.attempt >= newest and (isinstance(pod.trainer, Terminated) or pod.disruption is not None):
            self._pods[pod.name] = pod

    @property
    def pods(self) -> tuple[PodRecord, ...]:
        """The pods as they were last seen."""
        return tuple(self._pods.values())
