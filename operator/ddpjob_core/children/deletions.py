"""Which deletions take away what is left of a job's pods."""

from collections.abc import Iterable
from typing import Final

from ddpjob_core.api.names import attempt_of, parse_pod_name, parse_spare_pod_name, pod_name, spare_pod_name
from ddpjob_core.children.actions import Action, DeletePod, DeleteStray
from ddpjob_core.observations.abandoned import pods_not_kept
from ddpjob_core.observations.attempt import is_terminal
from ddpjob_core.observations.membership import joining
from ddpjob_core.observations.observed import PodRecord
from ddpjob_core.observations.root_cause import POD_MISSING
from ddpjob_core.observations.situation import Situation

ABANDONED_GRACE_SECONDS: Final = 1
"""Grace period for the pods of a failed attempt: with a rank gone, the others cannot save anything together."""


def deletions(pods: Iterable[PodRecord]) -> tuple[Action, ...]:
    """Deletions of these pods with their own grace period, except those that are being deleted already."""
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods if pod.deletion_time is None)


def abandoned_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of the pods of abandoned attempts: live ones immediately, ended ones unless their logs are kept."""
    return tuple(
        DeletePod(pod.name, pod.uid, None if is_terminal(pod) or _can_save(situation, pod) else _short_grace(situation))
        for pod in pods_not_kept(situation)
        if pod.deletion_time is None
    )


def stray_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of pods that left the watch, as one does that loses its label: they may still train.

    They go together with the first pods of the next attempt: requested while that waits, they would be requested at
    every reconcile, since nothing that is watched shows whether they are gone.
    """
    if situation.attempt.present:
        return ()
    return _left_behind(situation, range(situation.spec.nodes))


def strays_beyond(situation: Situation) -> tuple[Action, ...]:
    """The same for members of an elastic job's last attempt that spec.nodes no longer asks for.

    Only as long as status.membership is that of the last attempt is it known how many there were.
    """
    last = situation.status.membership
    if last is None or last.attempt != situation.attempt.number - 1:
        return ()
    return _left_behind(situation, range(situation.spec.nodes, last.nodes))


def missing_pods(situation: Situation) -> tuple[Action, ...]:
    """Deletions of the current attempt's pods that were created but are not seen: they may have lost a label."""
    if not situation.status.pods_created:
        return ()
    nodes = zip(situation.attempt.names, situation.attempt.nodes, strict=True)
    members = tuple(DeleteStray(name) for name, pod in nodes if pod is None)
    if situation.membership is None:
        return members
    job, number, width = situation.job.name, situation.attempt.number, situation.spec.most_nodes
    joins = [pod_name(job, number, ordinal, width) for ordinal, pod in joining(situation).items() if pod is None]
    waiting = [] if situation.membership.spares is None else situation.membership.spares.waiting or []
    spares = [
        spare_pod_name(job, number, each.number) for each in waiting if each.number not in situation.attempt.spares
    ]
    return (*members, *(DeleteStray(name) for name in (*joins, *spares)))


def _left_behind(situation: Situation, ordinals: range) -> tuple[Action, ...]:
    """Deletions of pods of the last attempt that are not seen, if it was left because one was not."""
    failure, number = situation.status.failure, situation.attempt.number
    if failure is None or failure.reason != POD_MISSING or failure.attempt != number - 1:
        return ()
    grace, width = _short_grace(situation), situation.spec.most_nodes
    names = [pod_name(situation.job.name, number - 1, ordinal, width) for ordinal in ordinals]
    missed = parse_pod_name(situation.job.name, failure.pod) if failure.pod is not None else None
    spare = parse_spare_pod_name(situation.job.name, failure.pod) if failure.pod is not None else None
    if failure.pod is not None and missed is not None and missed.member and missed.ordinal in ordinals:
        # One that had come in the place of a lost one.
        names.append(failure.pod)
    elif failure.pod is not None and spare is not None and failure.ordinal in ordinals:
        names.append(failure.pod)
    return tuple(DeleteStray(name, grace) for name in names if name not in situation.attempt.older)


def _can_save(situation: Situation, pod: PodRecord) -> bool:
    """Whether the pod's attempt was left while all of its ranks were there."""
    replaced = situation.status.replaced
    return replaced is not None and attempt_of(situation.job.name, pod.name) == replaced.attempt


def _short_grace(situation: Situation) -> int:
    return min(situation.spec.grace_period_seconds, ABANDONED_GRACE_SECONDS)
