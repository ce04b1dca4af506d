"""What a user can do about each class of failures: the table of docs/failures.md, for one failure at a time."""

from collections.abc import Mapping
from typing import Final

from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.obstacle import START_REASONS

_MEANING: Final[Mapping[FailureClass, tuple[str, str]]] = {
    FailureClass.OUT_OF_MEMORY: (
        "the kernel killed a process for its memory",
        "raise spec.trainer.resources.limits.memory, or use a smaller batch",
    ),
    FailureClass.DISRUPTION: (
        "Kubernetes took the pod away: preempted, evicted or drained",
        "nothing: such a restart is not counted; with spec.checkpoint the training goes on where it was",
    ),
    FailureClass.POD_LOST: (
        "the pod was deleted or is gone, or its node does not answer",
        "look at the node",
    ),
    FailureClass.SIGNAL: (
        "a process was killed by a signal",
        "the log shows the Python stack of a crash in native code",
    ),
    FailureClass.ERROR: (
        "the program raised, exited with a code of its own, or could not be started",
        "correct the program by the traceback or the log; spec.restart.rules can make such an end fail the job at once",
    ),
    FailureClass.STALLED: (
        "the training made no step for longer than spec.progressDeadline",
        "the message names who waits for whom, the traceback where that rank hangs",
    ),
    FailureClass.DEADLINE: (
        "spec.startupDeadline or spec.activeDeadlineSeconds has passed",
        "the message says what it still waited for; raise the deadline if that was to be expected",
    ),
    FailureClass.COLLECTIVE_TIMEOUT: (
        "a collective operation timed out, and the rank that did not take part has left no trace",
        "read the logs of all ranks around that time: the one that stops first is the cause",
    ),
    FailureClass.CONNECTION_LOST: (
        "a connection was lost, and the rank at its other end has left no trace",
        "read the logs of all ranks around that time: the one that stops first is the cause",
    ),
    FailureClass.STOPPED: (
        "the process was told to stop, and by whom has left no trace",
        "read the logs of all ranks around that time",
    ),
}
_BY_REASON: Final[Mapping[str, str]] = {
    **dict.fromkeys(START_REASONS, "check spec.trainer.command: the container's program could not be started"),
    "PodMissing": "somebody or something deleted the pod: kubectl get events, and the audit log, say who",
}
_BY_FAILED_REASON: Final[Mapping[str, str]] = {
    "InvalidSpec": "correct the field that the message names, delete the job and create it again",
    "MaxRestartsExceeded": "raise spec.restart.maxRestarts if another attempt could succeed",
    "NoProgress": "each attempt ended before a newer step: save checkpoints more often, or correct what ends them",
    "CannotStart": "correct what the message names, delete the job and create it again: no restart can help",
    "FailedByRule": "a rule of spec.restart.rules asked for this end",
    "DeadlineExceeded": "raise spec.activeDeadlineSeconds; with spec.checkpoint a new job goes on by resumeFrom",
}


def class_of(failure: Failure) -> FailureClass | None:
    """The failure's class, None for one that this version does not know."""
    try:
        return FailureClass(failure.failure_class or "")
    except ValueError:
        return None


def meaning(failure: Failure) -> str:
    """What such a failure is, "" where nothing is known."""
    kind = class_of(failure)
    return _MEANING[kind][0] if kind is not None else ""


def advice(failure: Failure, failed_reason: str = "") -> list[str]:
    """What to do, the most useful first.

    Args:
        failure: the root cause.
        failed_reason: reason of the condition Failed, "" where the job goes on.
    """
    told = [_BY_REASON[failure.reason]] if failure.reason in _BY_REASON else []
    kind = class_of(failure)
    if kind is not None:
        text = _MEANING[kind][1]
        looks_at_node = kind is FailureClass.POD_LOST and failure.node_name
        told.append(f"{text}: kubectl describe node {failure.node_name}" if looks_at_node else text)
    if failed_reason in _BY_FAILED_REASON:
        told.append(_BY_FAILED_REASON[failed_reason])
    return told


def advice_without_failure(failed_reason: str) -> list[str]:
    """What to do about a job that has failed before anything ran."""
    return [_BY_FAILED_REASON[failed_reason]] if failed_reason in _BY_FAILED_REASON else []
