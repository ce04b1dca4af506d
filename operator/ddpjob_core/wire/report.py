"""The launcher's report: how a pod's end is reported in its termination message.

The launcher (`ddpjob_launcher/report.py`, which cannot import this module) writes one line of compact JSON
of at most 2,048 bytes:

    {"exitCode": 1, "stopped": true, "stoppedBy": "SIGTERM", "generation": 2, "processRestarts": 1,
     "groupSize": 1, "jobSize": 4,
     "failures": [{"rank": 3, "localRank": 1, "exitCode": 7, "signal": "SIGKILL", "oom": true, "time": 1700000000.0,
                   "errorType": "ValueError", "message": "ValueError: bad", "traceback": "...",
                   "permanent": true}],
     "progress": {...}}

`exitCode` is the node's own; `stopped` says that the end was requested, `stoppedBy` by which signal to the container's
first process, if not by the ranks among themselves; `generation` is that of the membership in which a node of an
elastic job trained; `processRestarts` is how often the workers of
this node were restarted in place; `groupSize` is that of a process group that is smaller than the job, which has at
least `jobSize` processes; `failures` are the worker processes of this node that failed, `exitCode` or
`signal` being what the process itself ended with, `oom` that the kernel killed it because of its memory, `errorType`
the class of the exception that ended it, `permanent` that the program could not begin and another try would end the
same way; `progress` is the last progress that rank 0 reported, in the form of /progress.
Every key may be missing: a program may write its own termination message. Failures after the sixteenth are left out.
"""

import re
from dataclasses import dataclass
from typing import Final

from ddpjob_core.api.constants import MAX_NODES, MAX_PROCESSES
from ddpjob_core.api.status import Progress
from ddpjob_core.wire.fields import Fields, json_object
from ddpjob_core.wire.progress import parse_progress

MOST_RESTARTS: Final = 1_000_000
"""The most process restarts of one attempt that a report may name."""
_MOST_FAILURES: Final = 16
_LAST_RANK: Final = MAX_NODES * MAX_PROCESSES - 1
_LARGEST_CODE: Final = 2**31 - 1
_LATEST: Final = 2.0**33
"""In seconds since the epoch, in the year 2242."""
_LONGEST_TYPE: Final = 128
_LONGEST_MESSAGE: Final = 1024
_LONGEST_TRACEBACK: Final = 2048
_SIGNAL: Final = re.compile(r"SIG[A-Z0-9]{1,12}|signal [0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker process that failed: `time` in seconds since the epoch, 0 where unknown.

    `oom` says that the kernel killed it because of its memory, `error_type` is the name of the exception's class,
    `permanent` says that it could not begin and that another try would end the same way.
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
    """A node's end as its launcher reported it: `stopped` if it was requested, `stopped_by` from outside by a signal.

    `generation` is that of the membership in which it trained, None where it had joined none.
    `group_size` is that of a process group which is smaller than the job, of at least `job_size` processes.
    `progress` and `loss_text` are the last progress of rank 0, as in a `ProgressReport`. `dropped` are names of fields
    whose values could not be used.
    """

    failures: tuple[WorkerFailure, ...] = ()
    progress: Progress | None = None
    loss_text: str = ""
    process_restarts: int = 0
    stopped: bool = False
    stopped_by: str | None = None
    generation: int | None = None
    group_size: int | None = None
    job_size: int | None = None
    dropped: frozenset[str] = frozenset()


def parse_report(termination_message: str) -> Report | None:
    """The report in a termination message, or None if it holds none."""
    raw = json_object(termination_message)
    if raw is None or "exitCode" not in raw:
        return None
    fields = Fields(raw)
    last = fields.inner("progress")
    progress, loss_text = parse_progress(last) if last is not None else (None, "")
    return Report(
        failures=tuple(_failure(each) for each in fields.each("failures", _MOST_FAILURES)),
        progress=progress,
        loss_text=loss_text,
        process_restarts=fields.whole("processRestarts", MOST_RESTARTS) or 0,
        stopped=fields.flag("stopped"),
        stopped_by=fields.word("stoppedBy", _SIGNAL),
        generation=fields.whole("generation", _LARGEST_CODE),
        group_size=fields.whole("groupSize", _LAST_RANK, least=1),
        job_size=fields.whole("jobSize", _LAST_RANK + 1, least=2),
        dropped=frozenset(fields.dropped),
    )


def _failure(fields: Fields) -> WorkerFailure:
    return WorkerFailure(
        rank=fields.whole("rank", _LAST_RANK),
        local_rank=fields.whole("localRank", MAX_PROCESSES - 1),
        exit_code=fields.whole("exitCode", _LARGEST_CODE, least=-_LARGEST_CODE),
        signal=fields.word("signal", _SIGNAL),
        time=fields.number("time", _LATEST) or 0.0,
        message=fields.line("message", _LONGEST_MESSAGE) or "",
        traceback=fields.lines("traceback", _LONGEST_TRACEBACK),
        oom=fields.flag("oom"),
        error_type=fields.line("errorType", _LONGEST_TYPE),
        permanent=fields.flag("permanent"),
    )
