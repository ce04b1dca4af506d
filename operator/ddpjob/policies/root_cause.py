"""status.failure: which of the things that went wrong is the cause, the others being its consequences.

Time alone misleads: the victims of a SIGKILL report a lost connection before the killed process is noticed. So the
class of a failure counts first, then its time, then the lowest rank.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ddpjob.api.status import Failure
from ddpjob.observed import PodRecord, Terminated
from ddpjob.policies.attempt import Attempt, NodeState, node_state
from ddpjob.report import Report, WorkerFailure, parse_report

_UNKNOWN: Final = 1 << 30
_STOPPED: Final = "Stopped"
_CONNECTION_LOST: Final = "ConnectionLost"
_COLLECTIVE_TIMEOUT: Final = "CollectiveTimeout"
_CONSEQUENCES: Final = (_STOPPED, _CONNECTION_LOST, _COLLECTIVE_TIMEOUT)
_SIGTERM_EXIT_CODE: Final = 143
_SIGNAL_BASE: Final = 128
_LOST_CONNECTION = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused|lost|aborted)|broken pipe|remote process exited|"
    r"connectFullMesh failed|Rendezvous\w*Error|DistNetworkError|DistStoreError|NCCL.*(system|remote) error",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(r"\btimed out\b|watchdog caught collective operation", re.IGNORECASE)


class FailureClass(IntEnum):
    """Classes of failures, the most likely cause first."""

    POD = 0
    """The pod itself was taken away: out of memory, evicted, deleted, gone."""
    SIGNAL = 1
    """A process was killed by a signal."""
    PROGRAM = 2
    """The program raised or exited with a code of its own."""
    TIMEOUT = 3
    """A collective operation did not end in time: another rank did not take part."""
    CONNECTION = 4
    """The other side of a connection went away, or the node was told to stop."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    kind: FailureClass
    time: float
    rank: int
    ordinal: int
    failure: Failure


def find_root_cause(attempt: Attempt, *, missing_is_failed: bool) -> Failure | None:
    """The cause among all that failed in an attempt, or None where nothing did.

    Args:
        attempt: the pods.
        missing_is_failed: whether a missing pod is a failed one; else it is yet to be made.
    """
    candidates = [
        candidate
        for ordinal, pod in enumerate(attempt.nodes)
        if pod is not None or (missing_is_failed and attempt.state(ordinal) is NodeState.MISSING)
        for candidate in _candidates(attempt, ordinal)
    ]
    if not candidates:
        return None
    return min(candidates, key=lambda c: (c.kind, c.time, c.rank, c.ordinal)).failure


def _candidates(attempt: Attempt, ordinal: int) -> Iterator[_Candidate]:
    pod, name = attempt.nodes[ordinal], attempt.names[ordinal]
    state = node_state(pod)
    if pod is None:
        yield _of_pod(attempt, ordinal, "PodMissing", f"pod {name} is gone: it was deleted, or its node was removed")
        return
    if state is not NodeState.FAILED:
        return
    ended = pod.trainer if isinstance(pod.trainer, Terminated) else None
    if pod.reason == "Evicted" or pod.disruption:
        reason = pod.reason or pod.disruption or "Evicted"
        yield _of_pod(attempt, ordinal, reason, f"pod {name} was taken from its node: {pod.message or reason}")
    elif ended is not None and ended.reason == "OOMKilled":
        yield _of_pod(
            attempt,
            ordinal,
            "OOMKilled",
            f"pod {name} ran out of memory: raise spec.trainer.resources.limits.memory or lower the batch size",
            exit_code=ended.exit_code,
        )
    elif ended is None and pod.deletion_time is not None:
        yield _of_pod(attempt, ordinal, "PodDeleted", f"pod {name} was deleted while it trained")
    elif ended is None:
        yield _of_pod(attempt, ordinal, pod.reason or "PodFailed", pod.message or f"pod {name} failed")
    else:
        report = parse_report(ended.message) or Report()
        for worker in report.failures:
            yield _of_worker(attempt, ordinal, pod, worker)
        if not report.failures:
            yield _of_container(attempt, ordinal, pod, ended)


def _of_pod(attempt: Attempt, ordinal: int, reason: str, message: str, *, exit_code: int | None = None) -> _Candidate:
    pod = attempt.nodes[ordinal]
    failure = Failure(
        ordinal=ordinal,
        pod=attempt.names[ordinal],
        node_name=pod.node_name if pod is not None else None,
        attempt=attempt.number,
        exit_code=exit_code,
        reason=reason,
        message=_cut(message, 1024),
    )
    return _Candidate(FailureClass.POD, 0.0, _UNKNOWN, ordinal, failure)


def _of_worker(attempt: Attempt, ordinal: int, pod: PodRecord, worker: WorkerFailure) -> _Candidate:
    kind, reason = _classify(worker.exit_code, worker.signal, worker.message)
    who = f"rank {worker.rank}" if worker.rank is not None else f"node {ordinal}"
    if worker.signal:
        how = f"was killed by {worker.signal}"
    elif worker.exit_code is not None:
        how = f"exited with code {worker.exit_code}"
    else:
        how = "failed"
    failure = Failure(
        rank=worker.rank,
        ordinal=ordinal,
        pod=pod.name,
        node_name=pod.node_name,
        attempt=attempt.number,
        exit_code=worker.exit_code,
        signal=worker.signal,
        reason=reason,
        message=_cut(f"{who} {how}" + (f": {worker.message}" if worker.message else ""), 1024),
        traceback=_cut(worker.traceback, 2048) if worker.traceback else None,
    )
    rank = worker.rank if worker.rank is not None else _UNKNOWN
    return _Candidate(kind, worker.time or float(_UNKNOWN) * 2, rank, ordinal, failure)


def _of_container(attempt: Attempt, ordinal: int, pod: PodRecord, ended: Terminated) -> _Candidate:
    # The runtime tells a signal by the exit code alone.
    killed_by = _signal_name(ended.signal or ended.exit_code - _SIGNAL_BASE)
    said = ended.message.strip() if parse_report(ended.message) is None else ""
    kind, reason = _classify(ended.exit_code, killed_by, said)
    if ended.reason not in ("", "Error", "Completed"):
        # StartError, ContainerCannotRun: the kubelet's own word says more than the code 128 that comes with it.
        kind, reason = FailureClass.PROGRAM, ended.reason
    failure = Failure(
        ordinal=ordinal,
        pod=pod.name,
        node_name=pod.node_name,
        attempt=attempt.number,
        exit_code=ended.exit_code,
        signal=killed_by,
        reason=reason,
        message=_cut(
            f"the container trainer of {pod.name} exited with code {ended.exit_code}"
            + (f": {said}" if said else f"; see kubectl logs {pod.name}"),
            1024,
        ),
    )
    time = ended.finished_at.timestamp() if ended.finished_at else float(_UNKNOWN) * 2
    return _Candidate(kind, time, _UNKNOWN, ordinal, failure)


def _classify(exit_code: int | None, signal: str | None, text: str) -> tuple[FailureClass, str]:
    if signal == "SIGTERM" or exit_code == _SIGTERM_EXIT_CODE:
        # An agent stops its other workers by SIGTERM once one has failed.
        return FailureClass.CONNECTION, _STOPPED
    if signal:
        return FailureClass.SIGNAL, "Signal"
    if _LOST_CONNECTION.search(text):
        return FailureClass.CONNECTION, _CONNECTION_LOST
    if _TIMEOUT.search(text):
        return FailureClass.TIMEOUT, _COLLECTIVE_TIMEOUT
    return FailureClass.PROGRAM, "ExitCode" if exit_code is not None else "Error"


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def is_consequence(failure: Failure) -> bool:
    """Whether such a failure has a cause elsewhere, that may not have been seen yet."""
    return failure.reason in _CONSEQUENCES


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
