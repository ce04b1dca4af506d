"""The launcher's report: how the end of a pod is told through its termination message.

The launcher (`ddpjob/launcher/launcher.py`, stdlib only, it cannot import this module) writes one line of compact JSON
of at most 2,048 bytes:

    {"exitCode": 1,
     "failures": [{"rank": 3, "localRank": 1, "exitCode": 7, "signal": "SIGKILL", "time": 1700000000.0,
                   "message": "ValueError: bad", "traceback": "..."}],
     "progress": {...}}

`exitCode` is the node's own; `failures` are the worker processes of this node that failed, `exitCode` or `signal` being
what the process itself ended with; `progress` is the last progress that rank 0 reported, in the form of /progress.
Every key may be missing: a program may write its own termination message.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ddpjob.api.status import Progress


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker process that failed: `time` in seconds since the epoch, 0 where unknown."""

    rank: int | None
    local_rank: int | None
    exit_code: int | None
    signal: str | None
    time: float
    message: str
    traceback: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """A node's end as its launcher told it."""

    failures: tuple[WorkerFailure, ...] = ()
    progress: dict[str, Any] | None = None


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
    )


def _failure(raw: dict[str, Any]) -> WorkerFailure:
    return WorkerFailure(
        rank=_whole(raw.get("rank")),
        local_rank=_whole(raw.get("localRank")),
        exit_code=_whole(raw.get("exitCode")),
        signal=_text(raw.get("signal")),
        time=_number(raw.get("time")) or 0.0,
        message=_text(raw.get("message")) or "",
        traceback=_text(raw.get("traceback")),
    )


def parse_progress(raw: dict[str, Any], observed: datetime) -> tuple[Progress, str]:
    """The progress in a /progress answer, and its loss as text. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        observed: when it was read.
    """
    step, total = _whole(raw.get("step")), _whole(raw.get("totalSteps"))
    loss = _number(raw.get("loss"))
    loss_text = _text(raw.get("lossText")) or ("" if loss is None else f"{loss:.4g}")
    eta = _number(raw.get("etaSeconds"))
    progress = Progress(
        epoch=_whole(raw.get("epoch")),
        total_epochs=_whole(raw.get("totalEpochs")),
        step=step,
        total_steps=total,
        percent=min(100, step * 100 // total) if step is not None and total else None,
        loss=loss,
        samples_per_second=_rounded(_number(raw.get("samplesPerSecond"))),
        eta_seconds=None if eta is None else round(eta),
        last_step_time=_time(raw.get("lastStepTime")),
        last_checkpoint_step=_whole(raw.get("lastCheckpointStep")),
        observed_time=observed,
    )
    return progress, loss_text[:16]


def _whole(value: object) -> int | None:
    # The bound keeps what a program reports inside the CRD's int64.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= abs(value) < 2**53 else None


def _number(value: object) -> float | None:
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
