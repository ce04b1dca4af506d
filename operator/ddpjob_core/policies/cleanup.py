"""Which pods are deleted, and when: those of an attempt that was left, those of a finished job, and the job itself."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.names import pod_name
from ddpjob_core.api.spec import CleanPodPolicy, DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.children.actions import Action, DeleteJob, DeletePod, DeleteStray
from ddpjob_core.observations.attempt import LOST_AFTER, Attempt, has_stopped, is_terminal
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.root_cause import POD_MISSING
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision

KEPT_ATTEMPTS: Final = 3
"""Attempts before the current one whose ordinal 0 and root-cause pod are kept, so that their logs can be read."""

ABANDONED_GRACE_SECONDS: Final = 1
"""Grace period for the pods of a failed attempt: with a rank gone, the others cannot save anything together."""


def left_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of the pods of attempts that were left: live ones at once, ended ones unless their logs are kept."""
    grace = min(situation.spec.grace_period_seconds, ABANDONED_GRACE_SECONDS)
    return tuple(
        DeletePod(pod.name, pod.uid, None if is_terminal(pod) else grace)
        for number, pod in situation.attempt.older.values()
        if pod.deletion_time is None and not _is_kept(situation, number, pod)
    )


def left_pods_run(situation: Situation) -> bool:
    """Whether a pod of an attempt that was left still trains."""
    return any(not has_stopped(pod, situation.now) for _, pod in situation.attempt.older.values())


def left_pods_look_again(situation: Situation) -> tuple[datetime, ...]:
    """When pods of a lost node stop being waited for."""
    return tuple(
        pod.deletion_time + LOST_AFTER
        for _, pod in situation.attempt.older.values()
        if pod.deletion_time is not None and not has_stopped(pod, situation.now)
    )


def _is_kept(situation: Situation, number: int, pod: PodRecord) -> bool:
    if not is_terminal(pod) or number < situation.attempt.number - KEPT_ATTEMPTS:
        return False
    if number < situation.attempt.number - 1:
        # What is still there of these was kept when their attempt was left.
        return True
    failure = situation.status.failure
    return _is_first(pod) or (failure is not None and failure.pod == pod.name)


def _is_first(pod: PodRecord) -> bool:
    return int(pod.name.rpartition("-")[2]) == 0


def stray_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of pods that left the watch, as one does that loses its label: they may still train.

    They go together with the first pods of the next attempt: asked for while that waits, they would be asked for at
    every look, since nothing that is watched tells whether they are gone.
    """
    failure = situation.status.failure
    number = situation.attempt.number
    if failure is None or failure.reason != POD_MISSING or failure.attempt != number - 1 or situation.attempt.present:
        return ()
    nodes, grace = situation.spec.nodes, min(situation.spec.grace_period_seconds, ABANDONED_GRACE_SECONDS)
    names = (pod_name(situation.job.name, number - 1, ordinal, nodes) for ordinal in range(nodes))
    return tuple(DeleteStray(name, grace) for name in names if name not in situation.attempt.older)


def missing_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of the current attempt's pods that are not seen although all were made: they may have lost a label."""
    if not situation.status.pods_created:
        return ()
    nodes = zip(situation.attempt.names, situation.attempt.nodes, strict=True)
    return tuple(DeleteStray(name) for name, pod in nodes if pod is None)


def live_pods(attempt: Attempt) -> tuple[PodRecord, ...]:
    """All the job's pods in which something still runs, those that are being deleted included."""
    return tuple(pod for pod in all_pods(attempt) if not is_terminal(pod))


def all_pods(attempt: Attempt) -> tuple[PodRecord, ...]:
    """The job's pods of all attempts."""
    return (*attempt.present, *(pod for _, pod in attempt.older.values()))


def finished(situation: Situation) -> Decision | None:
    """A job that has ended: spec.cleanPodPolicy and spec.ttlSecondsAfterFinished are all that is left to do."""
    status, spec = situation.status, situation.spec
    if not status.finished:
        return None
    due = _expiry(status, spec)
    if due is not None and situation.now >= due:
        return Decision(status, (DeleteJob(situation.job.uid),))
    return Decision(
        status,
        pods_to_clean(situation),
        look_again=(due,) if due is not None else (),
    )


def pods_to_clean(situation: Situation) -> tuple[Action, ...]:
    """Deletions that spec.cleanPodPolicy asks for once the job has finished."""
    attempt, policy = situation.attempt, situation.spec.clean_pod_policy
    if policy is CleanPodPolicy.NONE:
        return ()
    chosen = all_pods(attempt) if policy is CleanPodPolicy.ALL else live_pods(attempt)
    return tuple(DeletePod(pod.name, pod.uid) for pod in chosen if pod.deletion_time is None)


def _expiry(status: DDPJobStatus, spec: DDPJobSpec) -> datetime | None:
    if spec.ttl_seconds_after_finished is None or status.completion_time is None:
        return None
    return status.completion_time + timedelta(seconds=spec.ttl_seconds_after_finished)
