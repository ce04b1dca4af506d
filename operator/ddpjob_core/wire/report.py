"""The launcher's report: how the end of a pod is told through its termination message.

The launcher (`ddpjob_launcher/launcher.py`, stdlib only, it cannot import this module) writes one line of compact JSON
of at most 2,048 bytes:

    {"exitCode": 1, "stopped": true, "processRestarts": 1,
     "failures": [{"rank": 3, "localRank": 1, "exitCode": 7, "signal": "SIGKILL", "oom": true, "time": 1700000000.0,
                   "errorType": "ValueError", "message": "ValueError: bad", "traceback": "...",
                   "permanent": true}],
     "progress": {...}}

`exitCode` is the node's own; `stopped` says that the end was asked for; `processRestarts` is how often the workers of
this node were started again in place; `failures` are the worker processes of this node that failed, `exitCode` or
`signal` being what the process itself ended with, `oom` that the kernel killed it for its memory, `errorType` the class
of the exception that ended it, `permanent` that the program could not be started and that the next try would end the
same way; `progress` is the last progress that rank 0 reported, in the form of /progress.
Every key may be missing: a program may write its own termination message.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from ddpjob_core.api.status import Progress

# A program may write what it likes; restarts of many pods are added up.
_MOST_RESTARTS: Final = 1_000_000
_LONGEST_TYPE: Final = 128


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker process that failed: `time` in seconds since the epoch, 0 where unknown.

    `oom` tells that the kernel killed it for its memory, `error_type` the name of the exception's class, `permanent`
    that it could not be started and that the next try would end the same way.
    """

    rank: int | None
    local_rank: int | None
    exit_code: int | None
    signal: str | None
    time: float
    message: str
    traceback: str | None
    oom: bool = False
    error_type: str | None = None
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A node's end as its launcher told it: `stopped` where it was asked for."""

    failures: tuple[WorkerFailure, ...] = ()
    progress: dict[str, Any] | None = None
    process_restarts: int = 0
    stopped: bool = False


@lru_cache(maxsize=4096)
def parse_report(termination_message: str) -> Report | None:
    """The report in a termination message, or None where it is none."""
    try:
        raw = json.loads(termination_message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or "exitCode" not in raw:
        return None
    failures = raw.get("failures")
    progress = raw.get("progress")
    return Report(
        failures=tuple(_failure(item) for item in failures if isinstance(item, dict))
        if isinstance(failures, list)
        else (),
        progress=progress if isinstance(progress, dict) else None,
        process_restarts=min(max(0, whole_number(raw.get("processRestarts")) or 0), _MOST_RESTARTS),
        stopped=raw.get("stopped") is True,
    )


def _failure(raw: dict[str, Any]) -> WorkerFailure:
    return WorkerFailure(
        rank=whole_number(raw.get("rank")),
        local_rank=whole_number(raw.get("localRank")),
        exit_code=whole_number(raw.get("exitCode")),
        signal=_text(raw.get("signal")),
        time=finite_number(raw.get("time")) or 0.0,
        message=_text(raw.get("message")) or "",
        traceback=_text(raw.get("traceback")),
        oom=raw.get("oom") is True,
        error_type=(_text(raw.get("errorType")) or "")[:_LONGEST_TYPE] or None,
        permanent=raw.get("permanent") is True,
    )


def parse_progress(raw: dict[str, Any], observed: datetime) -> tuple[Progress, str]:
    """The progress in a /progress answer, and its loss as text. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        observed: when it was read.
    """
    step, total = whole_number(raw.get("step")), whole_number(raw.get("totalSteps"))
    loss = finite_number(raw.get("loss"))
    loss_text = _text(raw.get("lossText")) or ("" if loss is None else f"{loss:.4g}")
    eta = finite_number(raw.get("etaSeconds"))
    progress = Progress(
        epoch=whole_number(raw.get("epoch")),
        total_epochs=whole_number(raw.get("totalEpochs")),
        step=step,
        total_steps=total,
        percent=percent_of(step, total),
        loss=loss,
        samples_per_second=_rounded(finite_number(raw.get("samplesPerSecond"))),
        eta_seconds=None if eta is None else round(eta),
        last_step_time=_time(raw.get("lastStepTime")),
        last_checkpoint_step=whole_number(raw.get("lastCheckpointStep")),
        observed_time=observed,
    )
    return progress, loss_text[:16]


def percent_of(step: int | None, total: int | None) -> int | None:
    """Steps done of steps to do in percent, at most 100; None where either is not known."""
    return min(100, step * 100 // total) if step is not None and total else None


def whole_number(value: object) -> int | None:
    """The value where it is a whole number that JSON can tell apart from its neighbours, else None."""
    # The bound keeps what a program reports inside the CRD's int64.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= abs(value) < 2**53 else None


def finite_number(value: object) -> float | None:
    """The value as a float where it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _text(value: object) -> str | None:
    # JSON can hold half a surrogate pair, which no status can.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
