"""The report of a node's end, as the container's termination message: see ddpjob_core.wire.report, which reads it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from .log import say

REPORT_BYTES = 2048


@dataclass
class Failure:
    """What has failed on this node, and when, in seconds since the epoch.

    Attributes:
        message: one line.
        time: when it failed.
        rank: of the worker; None where what failed is not a worker.
        local_rank: of the worker on this node.
        exit_code: what the process exited with; None where a signal ended it.
        signal: name of the signal that ended it.
        error_type: class of the exception.
        traceback: where it was raised.
        oom: whether the kernel killed it for its memory.
        permanent: whether the next try would end the same way.
    """

    message: str
    time: float
    rank: int | None = None
    local_rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    error_type: str | None = None
    traceback: str = ""
    oom: bool = False
    permanent: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Its JSON object, without what is not known."""
        entry = {
            "rank": self.rank,
            "localRank": self.local_rank,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "oom": self.oom or None,
            "permanent": self.permanent or None,
            "time": self.time,
            "errorType": self.error_type,
            "message": self.message,
            "traceback": self.traceback or None,
        }
        return {key: value for key, value in entry.items() if value is not None}


def encode_report(
    code: int,
    failures: list[Failure],
    message: str = "",
    progress: dict[str, Any] | None = None,
    *,
    restarts: int = 0,
    stopped: bool = False,
    stopped_by: str | None = None,
    generation: int | None = None,
    group: tuple[int, ...] = (),
) -> bytes:
    """The report as one line of JSON of at most REPORT_BYTES: what is dropped first is a traceback's beginning."""
    known = {"stopped": stopped, "stoppedBy": stopped_by, "processRestarts": restarts, "message": clip(message, 512)}
    report: dict[str, Any] = {"exitCode": code, **{name: value for name, value in known.items() if value}}
    if generation is not None:
        report["generation"] = generation
    if group:
        report["groupSize"], report["jobSize"] = group
    if progress and len(to_json(progress)) <= REPORT_BYTES // 3:
        report["progress"] = progress
    kept: list[Failure] = []

    def encoded(failures: list[Failure]) -> bytes:
        return to_json({**report, "failures": [failure.to_wire() for failure in failures]} if failures else report)

    for failure in failures:
        brief = replace(failure, traceback="", message=clip(failure.message, 96 if kept else 512))
        if len(encoded([*kept, brief])) > REPORT_BYTES:
            break
        kept.append(brief)
    if kept and failures[0].traceback:
        kept[0].traceback = " "
        room = REPORT_BYTES - len(encoded(kept)) + 1
        kept[0].traceback = clip(failures[0].traceback, room, end=True) if room > 0 else ""
    return encoded(kept)


def clip(text: str, limit: int, *, end: bool = False) -> str:
    """The beginning, or the end, of the text that takes at most `limit` bytes in JSON."""
    if len(to_json(text)) - 2 <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = "…" + text[-middle:] if end else text[:middle] + "…"
        low, high = (middle, high) if len(to_json(part)) - 2 <= limit else (low, middle - 1)
    if not low:
        return ""
    return "…" + text[-low:] if end else text[:low] + "…"


def to_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def write_report(report: bytes) -> None:
    """Make the report the container's termination message."""
    try:
        with open(_termination_log(), "wb") as file:  # noqa: PTH123 -- a path of the environment
            file.write(report)
    except OSError as error:
        say(f"cannot write the termination message: {error}")


def is_reported() -> bool:
    """Whether a report has been written."""
    return os.path.exists(_termination_log()) and os.path.getsize(_termination_log()) > 0  # noqa: PTH110, PTH202


def _termination_log() -> str:
    # Where Kubernetes looks unless a container says otherwise, which ours never does.
    return os.environ.get("DDPJOB_TERMINATION_LOG", "/dev/termination-log")
