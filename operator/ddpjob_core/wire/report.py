"""The launcher's report: how a pod's end is reported in its termination message.

The launcher (`ddpjob_launcher/report.py`, which cannot import this module) writes one line of compact JSON
of at most 2,048 bytes:

    {"exitCode": 1, "stopped": true, "processRestarts": 1,
     "failures": [{"rank": 3, "localRank": 1, "exitCode": 7, "signal": "SIGKILL", "oom": true, "time": 1700000000.0,
                   "errorType": "ValueError", "message": "ValueError: bad", "traceback": "...",
                   "permanent": true}],
     "progress": {...}}

`exitCode` is the node's own; `stopped` says that the end was requested; `processRestarts` is how often the workers of
this node were restarted in place; `failures` are the worker processes of this node that failed, `exitCode` or
`signal` being what the process itself ended with, `oom` that the kernel killed it because of its memory, `errorType`
the class of the exception that ended it, `permanent` that the program could not be started and another try would end
the same way; `progress` is the last progress that rank 0 reported, in the form of /progress.
Every key may be missing: a program may write its own termination message.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ddpjob_core.wire.values import finite_number, text_or_none, whole_number

# A program may write anything; restarts of many pods are added up.
_MOST_RESTARTS: Final = 1_000_000
_LONGEST_TYPE: Final = 128


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker process that failed: `time` in seconds since the epoch, 0 where unknown.

    `oom` says that the kernel killed it because of its memory, `error_type` is the name of the exception's class,
    `permanent` says that it could not be started and that another try would end the same way.
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
    """A node's end as its launcher reported it: `stopped` if it was requested."""

    failures: tuple[WorkerFailure, ...] = ()
    progress: dict[str, Any] | None = None
    process_restarts: int = 0
    stopped: bool = False


@lru_cache(maxsize=4096)
def parse_report(termination_message: str) -> Report | None:
    """The report in a termination message, or None if it holds none."""
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
        signal=text_or_none(raw.get("signal")),
        time=finite_number(raw.get("time")) or 0.0,
        message=text_or_none(raw.get("message")) or "",
        traceback=text_or_none(raw.get("traceback")),
        oom=raw.get("oom") is True,
        error_type=(text_or_none(raw.get("errorType")) or "")[:_LONGEST_TYPE] or None,
        permanent=raw.get("permanent") is True,
    )
