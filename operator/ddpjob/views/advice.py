"""What a user can do about each class of failure, as in the table of docs/failures.md."""

import re
from collections.abc import Mapping
from typing import Final

from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.obstacle import START_REASONS

_MEANING: Final[Mapping[FailureClass, tuple[str, str]]] = {
    FailureClass.OUT_OF_MEMORY: (
        "the kernel killed a process because the container ran out of memory",
        "raise spec.trainer.resources.limits.memory, or use a smaller batch",
    ),
    FailureClass.DISRUPTION: (
        "Kubernetes removed the pod: preempted, evicted or drained",
        "nothing: such a restart is not counted, and with spec.checkpoint the training continues from its checkpoint",
    ),
    FailureClass.POD_LOST: (
        "the pod was deleted or has vanished, or its node does not respond",
        "check the node",
    ),
    FailureClass.SIGNAL: (
        "a process was killed by a signal",
        "a process in the pod, or its program itself, sent the signal: see the log",
    ),
    FailureClass.ERROR: (
        "the program raised an exception, exited with an error, or could not be started",
        "fix the program: see the traceback or the log; spec.restart.rules can fail the job immediately in such a case",
    ),
    FailureClass.NOT_FINITE: (
        "the loss, a gradient or the state of the training became NaN or infinite",
        "the message names step and rank: lower the learning rate, clip gradients, check the data, or set on_nan",
    ),
    FailureClass.STALLED: (
        "no step was completed for longer than spec.progressDeadline",
        "the message says which rank waits for which, the traceback where that rank hangs",
    ),
    FailureClass.DEADLINE: (
        "spec.startupDeadline or spec.activeDeadlineSeconds has passed",
        "the message says what it still waited for; raise the deadline if that was expected",
    ),
    FailureClass.WAITING: (
        "the nodes that were up have given up waiting for pods that have no node, or that a quota does not allow",
        "nothing: such a restart is not counted; check what the message names, or raise spec.rendezvous.timeoutSeconds",
    ),
    FailureClass.COLLECTIVE_TIMEOUT: (
        "a collective operation timed out, and the rank that did not take part left no trace",
        "read the logs of all ranks around that time: the one that stops first is the cause",
    ),
    FailureClass.CONNECTION_LOST: (
        "a connection was lost, and the rank at its other end left no trace",
        "read the logs of all ranks around that time: the one that stops first is the cause",
    ),
    FailureClass.STOPPED: (
        "the process was asked to stop, and nothing shows what requested it",
        "read the logs of all ranks around that time",
    ),
}
_CRASHED: Final = "the log shows the Python stack of a crash in native code"
_BY_SIGNAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"), _CRASHED),
    "SIGBUS": f"{_CRASHED}; often /dev/shm or a mapped file is full: raise spec.trainer.resources.limits.memory",
    "SIGKILL": "it leaves no stack: a process in the pod killed it, or its node did: kubectl describe node",
}
_WITHOUT_CUDA: Final = re.compile(
    r"not compiled with CUDA|not (been )?built with (CUDA|NCCL)|have NCCL built in", re.IGNORECASE
)
_WITHOUT_GPUS: Final = re.compile(
    r"No CUDA GPUs are available|no NVIDIA driver|no CUDA-capable device|no GPUs found|cuda\.is_available\(\) is False"
    r"|ProcessGroupNCCL is only supported with GPUs|CUDA driver version is insufficient|libcuda\.so",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"PermissionError|permission denied", re.IGNORECASE)
_AS_ANOTHER_USER: Final = (
    "a pod runs as user 1000 unless its job names another one: write to the home folder, to /tmp or to a volume, "
    "or set spec.template.spec.securityContext.runAsUser to the user that the files belong to"
)
_WRONG_GPU: Final = re.compile(r"invalid device ordinal", re.IGNORECASE)
_BY_REASON: Final[Mapping[str, str]] = {
    **dict.fromkeys(START_REASONS, "check spec.trainer.command: the container's program could not be started"),
    "InitContainerFailed": (
        "the program has not run: fix what the init container of spec.template does; "
        "one that changes owners, say, has to ask for securityContext.runAsUser: 0"
    ),
    "PodMissing": "the pod was deleted: kubectl get events and the audit log show by whom",
}
_BY_FAILED_REASON: Final[Mapping[str, str]] = {
    "InvalidSpec": "correct the field that the message names, with kubectl edit or apply: the job then starts again",
    "MaxRestartsExceeded": "raise spec.restart.maxRestarts if another attempt could succeed",
    "NoProgress": "each attempt ended before a newer step: save checkpoints more often, or fix what ends the attempts",
    "CannotStart": "correct what the message names, then delete the job and create it again: restarts cannot help",
    "FailedByRule": "a restart rule, of spec.restart.rules or a default one, failed the job: docs/failures.md",
    "DeadlineExceeded": "raise spec.activeDeadlineSeconds; with spec.checkpoint, a new job can use resumeFrom",
}


def class_of(failure: Failure) -> FailureClass | None:
    """The failure's class, None if this version does not know it."""
    try:
        return FailureClass(failure.failure_class or "")
    except ValueError:
        return None


def meaning(failure: Failure) -> str:
    """What such a failure is, "" if nothing is known."""
    kind = class_of(failure)
    return _MEANING[kind][0] if kind is not None else ""


def advice(failure: Failure, failed_reason: str = "", *, gpus: bool | None = None) -> list[str]:
    """What to do, the most useful advice first.

    Args:
        failure: the root cause.
        failed_reason: reason of the condition Failed, "" if the job continues.
        gpus: whether the job requests GPUs, None if that is not known.
    """
    found = [_BY_REASON[failure.reason]] if failure.reason in _BY_REASON else []
    found += _about_gpus(failure, gpus=gpus)
    if _DENIED.search(_text_of(failure)):
        found.append(_AS_ANOTHER_USER)
    kind = class_of(failure)
    if kind is not None:
        text = _BY_SIGNAL.get(failure.signal or "", "") if kind is FailureClass.SIGNAL else ""
        text = text or _MEANING[kind][1]
        looks_at_node = kind is FailureClass.POD_LOST and failure.node_name
        found.append(f"{text}: kubectl describe node {failure.node_name}" if looks_at_node else text)
    if failed_reason in _BY_FAILED_REASON:
        found.append(_BY_FAILED_REASON[failed_reason])
    return found


def _text_of(failure: Failure) -> str:
    return f"{failure.message}\n{failure.traceback or ''}"


def _about_gpus(failure: Failure, *, gpus: bool | None) -> list[str]:
    """What errors of CUDA and NCCL mean that come from a program without GPUs."""
    text = _text_of(failure)
    if _WITHOUT_CUDA.search(text):
        return ["the torch of spec.trainer.image has no CUDA: use an image whose torch has, or the CPU and gloo"]
    if _WRONG_GPU.search(text):
        return ["a rank uses a GPU that its node's pod does not have: request one for each of spec.procsPerNode"]
    if not _WITHOUT_GPUS.search(text):
        return []
    request = "request some (spec.trainer.resources.limits: nvidia.com/gpu), or use the CPU and gloo"
    if gpus is False:
        return [f"the job requests no GPUs: {request}"]
    there = "check that the image's torch has CUDA and that the node's driver is new enough for it"
    return [f"the process sees no GPU: {there}" if gpus else f"the process sees no GPU: {request}; {there}"]


def advice_without_failure(failed_reason: str) -> list[str]:
    """What to do about a job that failed before anything ran."""
    return [_BY_FAILED_REASON[failed_reason]] if failed_reason in _BY_FAILED_REASON else []
