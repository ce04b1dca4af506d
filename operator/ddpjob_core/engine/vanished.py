"""Pods that were gone before anybody looked at how they had ended."""

from ddpjob_core.observations.observed import PodRecord, Terminated


class Departed:
    """How the pods of each job's newest attempt ended that are there no more.

    The kubelet reports the end of an evicted pod and removes it within milliseconds. It is a help, not a fact to rely
    on: a restarted operator knows nothing of it.
    """

    def __init__(self) -> None:
        """Nothing has departed yet."""
        self._pods: dict[str, dict[str, PodRecord]] = {}

    def saw(self, pod: PodRecord, *, gone: bool) -> None:
        """A pod is in this state, or was so when it was seen last."""
        if pod.owner_uid is None or pod.attempt is None:
            return
        known = self._pods.get(pod.owner_uid, {})
        newest = max((each.attempt or 0 for each in known.values()), default=pod.attempt)
        if pod.attempt > newest:
            del self._pods[pod.owner_uid]
            known = {}
        if gone and pod.attempt >= newest and isinstance(pod.trainer, Terminated):
            self._pods[pod.owner_uid] = {**known, pod.name: pod}

    def of(self, owner_uid: str) -> tuple[PodRecord, ...]:
        """The departed pods of a job."""
        return tuple(self._pods.get(owner_uid, {}).values())

    def forget(self, owner_uid: str) -> None:
        """The job is gone."""
        self._pods.pop(owner_uid, None)
