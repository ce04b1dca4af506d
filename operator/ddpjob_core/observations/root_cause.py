"""status.failure: which of several failures is the cause; the others are its consequences.

Time alone misleads: the victims of a SIGKILL report a lost connection before the killed process is noticed. So the
class of a failure counts first, then its time, then the lowest rank.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpjob_core.api.restart import CANNOT_START
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.advice import IN_A_CLUSTER, Advice
from ddpjob_core.observations.attempt import Attempt, NodeState, node_state
from ddpjob_core.observations.failure_class import (
    CONSEQUENCES,
    SIGTERM_EXIT_CODE,
    FailureClass,
    class_of_process,
    is_permanent,
    likelihood,
)
from ddpjob_core.observations.listing import first_few
from ddpjob_core.observations.observed import InitFailure, PodRecord, Terminated
from ddpjob_core.wire.report import Report, WorkerFailure

POD_MISSING: Final = "PodMissing"
INIT_CONTAINER_FAILED: Final = "InitContainerFailed"
_UNKNOWN: Final = 1 << 30
_EVICTED: Final = "Evicted"
_SIGNAL_BASE: Final = 128
_NAMED_CONSEQUENCES: Final = 8
_REASONS: Final = {
    FailureClass.OUT_OF_MEMORY: "OOMKilled",
    FailureClass.SIGNAL: "Signal",
    FailureClass.NOT_FINITE: "NotFinite",
    FailureClass.COLLECTIVE_TIMEOUT: "CollectiveTimeout",
    FailureClass.CONNECTION_LOST: "ConnectionLost",
    FailureClass.STOPPED: "Stopped",
}
_MORE_MEMORY: Final = "raise spec.trainer.resources.limits.memory or reduce the batch size"


@dataclass(frozen=True, slots=True)
class _Candidate:
    kind: FailureClass
    time: float
    rank: int
    ordinal: int
    failure: Failure
    detail: str
    """What happened, without who it happened to."""

    @property
    def order(self) -> tuple[int, float, int, int]:
        return likelihood(self.kind), self.time, self.rank, self.ordinal


def find_root_cause(
    attempt: Attempt, *, missing_is_failed: bool, lost_is_failed: bool = False, advice: Advice = IN_A_CLUSTER
) -> Failure | None:
    """The cause among all failures of an attempt, with the others as its consequences; None if nothing failed.

    Args:
        attempt: the pods.
        missing_is_failed: whether a missing pod has failed; otherwise it is yet to be created.
        lost_is_failed: whether a pod whose node does not answer has failed.
        advice: where the logs are found.
    """
    found = sorted(
        (
            candidate
            for ordinal, pod in enumerate(attempt.nodes)
            if pod is not None or (missing_is_failed and attempt.state(ordinal) is NodeState.MISSING)
            for candidate in _candidates(attempt, ordinal, advice, lost_is_failed=lost_is_failed)
        ),
        key=lambda candidate: candidate.order,
    )
    if not found:
        return None
    others = [_in_short(candidate) for candidate in found[1:]]
    return found[0].failure.model_copy(update={"consequences": first_few(others, _NAMED_CONSEQUENCES) or None})


def _in_short(candidate: _Candidate) -> str:
    failure = candidate.failure
    return _cut(f"{_who(failure.rank, candidate.ordinal)}: {failure.failure_class}: {candidate.detail}", 253)


def _who(rank: int | None, ordinal: int) -> str:
    return f"rank {rank}" if rank is not None else f"node {ordinal}"


def _candidates(attempt: Attempt, ordinal: int, advice: Advice, *, lost_is_failed: bool) -> Iterator[_Candidate]:
    pod, name = attempt.last_seen(ordinal), attempt.names[ordinal]
    state = attempt.state(ordinal)
    if state is NodeState.MISSING and pod is not None and (pod.disruption or node_state(pod) is NodeState.FAILED):
        state = NodeState.FAILED
    if pod is None or state is NodeState.MISSING:
        message = f"pod {name} is gone: it was deleted, or its node was removed"
        yield _of_pod(attempt, ordinal, FailureClass.POD_LOST, POD_MISSING, message)
        return
    if state not in (NodeState.FAILED, NodeState.SUCCEEDED) and pod.node_lost and lost_is_failed:
        message = f"node {pod.node_name} of pod {name} does not respond: kubectl describe node {pod.node_name}"
        yield _of_pod(attempt, ordinal, FailureClass.POD_LOST, "NodeLost", message)
        return
    if state is not NodeState.FAILED:
        return
    ended = pod.trainer if isinstance(pod.trainer, Terminated) else None
    if pod.reason == _EVICTED or pod.disruption:
        reason = pod.reason or pod.disruption or _EVICTED
        message = f"pod {name} was removed from its node: {pod.message or reason}"
        # Kubernetes marks what it takes away for others, and not a pod that has used more disk than its limits allow.
        kind = FailureClass.DISRUPTION if pod.disruption else FailureClass.ERROR
        yield _of_pod(attempt, ordinal, kind, reason, message)
    elif pod.deletion_time is not None and (ended is None or _was_stopped(ended)):
        message = f"pod {name} was deleted while it was training"
        yield _of_pod(attempt, ordinal, FailureClass.POD_LOST, "PodDeleted", message)
    elif ended is None and pod.init_failure is not None:
        yield _of_init_container(attempt, ordinal, pod, pod.init_failure, advice)
    elif ended is None:
        message = pod.message or f"pod {name} failed"
        yield _of_pod(attempt, ordinal, FailureClass.POD_LOST, pod.reason or "PodFailed", message)
    else:
        yield from _of_end(attempt, ordinal, pod, ended, advice)


def _was_stopped(ended: Terminated) -> bool:
    report = ended.report
    killed = ended.exit_code in (SIGTERM_EXIT_CODE, _SIGNAL_BASE + signal.SIGKILL)
    return report.stopped if report is not None else killed


def _of_end(attempt: Attempt, ordinal: int, pod: PodRecord, ended: Terminated, advice: Advice) -> Iterator[_Candidate]:
    report = ended.report or Report()
    if ended.reason == "OOMKilled" and not any(worker.oom for worker in report.failures):
        message = f"pod {pod.name} ran out of memory: {_MORE_MEMORY}"
        yield _of_pod(attempt, ordinal, FailureClass.OUT_OF_MEMORY, "OOMKilled", message, exit_code=ended.exit_code)
        return
    for worker in report.failures:
        yield _of_worker(attempt, ordinal, pod, worker)
    if report.failures:
        return
    if report.stopped_by is not None:
        yield _of_stop(attempt, ordinal, pod, ended, report.stopped_by)
    else:
        yield _of_container(attempt, ordinal, pod, ended, advice, stopped=report.stopped)


def _of_pod(
    attempt: Attempt,
    ordinal: int,
    kind: FailureClass,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    killed_by: str | None = None,
    time: float = 0.0,
) -> _Candidate:
    """What is known of a pod, or of a container of it, and not of a rank."""
    pod = attempt.last_seen(ordinal)
    failure = Failure(
        ordinal=ordinal,
        pod=attempt.names[ordinal],
        node_name=pod.node_name if pod is not None else None,
        attempt=attempt.number,
        failure_class=kind.value,
        exit_code=exit_code,
        signal=killed_by,
        reason=reason,
        message=_cut(message, 1024),
    )
    return _Candidate(kind, time, _UNKNOWN, ordinal, failure, message)


def _of_worker(attempt: Attempt, ordinal: int, pod: PodRecord, worker: WorkerFailure) -> _Candidate:
    kind = class_of_process(worker.exit_code, worker.signal, worker.message, out_of_memory=worker.oom)
    if worker.permanent:
        how = "cannot start"
    elif worker.signal:
        how = f"was killed by {worker.signal}"
    elif worker.exit_code is not None:
        how = f"exited with code {worker.exit_code}"
    else:
        how = "failed"
    # If nothing better is known, the launcher says the same in other words.
    nothing_new = worker.message in ("", f"killed by {worker.signal}", f"exit code {worker.exit_code}")
    detail = "" if nothing_new else f": {worker.message}"
    remedy = f"; {_MORE_MEMORY}" if worker.oom else ""
    what = f"{how}{detail}{remedy}"
    failure = Failure(
        rank=worker.rank,
        ordinal=ordinal,
        pod=pod.name,
        node_name=pod.node_name,
        attempt=attempt.number,
        failure_class=kind.value,
        exit_code=worker.exit_code,
        signal=worker.signal,
        reason=CANNOT_START if worker.permanent else _reason(kind, worker.exit_code),
        message=_cut(f"{_who(worker.rank, ordinal)} {what}", 1024),
        traceback=_cut(worker.traceback, 2048) if worker.traceback else None,
    )
    rank = worker.rank if worker.rank is not None else _UNKNOWN
    return _Candidate(kind, worker.time or float(_UNKNOWN) * 2, rank, ordinal, failure, what)


def _of_stop(attempt: Attempt, ordinal: int, pod: PodRecord, ended: Terminated, name: str) -> _Candidate:
    """A container that something other than a deletion of its pod has stopped: what others report is a consequence."""
    message = (
        f"the container trainer of {pod.name} was asked to stop by {name}, and not because its pod was deleted: "
        f"see kubectl describe pod {pod.name} and the events of its node"
    )
    kind = FailureClass.SIGNAL
    return _of_pod(
        attempt,
        ordinal,
        kind,
        _REASONS[kind],
        message,
        exit_code=ended.exit_code,
        killed_by=name,
        time=_ended_at(ended),
    )


def _ended_at(ended: Terminated) -> float:
    return ended.finished_at.timestamp() if ended.finished_at else float(_UNKNOWN) * 2


def _reason(kind: FailureClass, exit_code: int | None) -> str:
    return _REASONS.get(kind) or ("ExitCode" if exit_code is not None else "Error")


def _of_container(
    attempt: Attempt, ordinal: int, pod: PodRecord, ended: Terminated, advice: Advice, *, stopped: bool
) -> _Candidate:
    # The runtime reports a signal by the exit code alone.
    killed_by = _signal_name(ended.signal or ended.exit_code - _SIGNAL_BASE)
    kind = class_of_process(ended.exit_code, killed_by, ended.message, out_of_memory=False)
    reason = _REASONS.get(kind) or "ExitCode"
    if stopped:
        kind, reason = FailureClass.STOPPED, _REASONS[FailureClass.STOPPED]
    if ended.reason not in ("", "Error", "Completed"):
        # StartError, ContainerCannotRun: the kubelet's own reason says more than the exit code 128 that comes with it.
        kind, reason = FailureClass.ERROR, ended.reason
    message = f"the container trainer of {pod.name} exited with code {ended.exit_code}" + (
        f": {ended.message}" if ended.message else f"; {advice.see_log(pod.name)}"
    )
    return _of_pod(
        attempt, ordinal, kind, reason, message, exit_code=ended.exit_code, killed_by=killed_by, time=_ended_at(ended)
    )


def _of_init_container(
    attempt: Attempt, ordinal: int, pod: PodRecord, failed: InitFailure, advice: Advice
) -> _Candidate:
    """The end of an init container: the program has not run."""
    ended = failed.ended
    killed_by = _signal_name(ended.signal or ended.exit_code - _SIGNAL_BASE)
    kind = FailureClass.OUT_OF_MEMORY if ended.reason == "OOMKilled" else FailureClass.ERROR
    how = f"exited with code {ended.exit_code}" + (f" ({ended.reason})" if ended.reason not in ("", "Error") else "")
    detail = f": {ended.message}" if ended.message else f"; {advice.see_log(pod.name, failed.container)}"
    message = f"the init container {failed.container} of {pod.name} {how}{detail}"
    reason = CANNOT_START if is_permanent(ended.reason, ended.message) else INIT_CONTAINER_FAILED
    return _of_pod(
        attempt, ordinal, kind, reason, message, exit_code=ended.exit_code, killed_by=killed_by, time=_ended_at(ended)
    )


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def is_consequence(failure: Failure) -> bool:
    """Whether such a failure is caused by another one, which may not have been seen yet."""
    return failure.failure_class in [kind.value for kind in CONSEQUENCES]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
