"""A process that the program spawned: what torch.multiprocessing.spawn says of its end, in terms of that process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .cgroup import memory_limit
from .report import clip

if TYPE_CHECKING:
    from .report import Failure

_RAISED = re.compile(r"-- Process (\d+) terminated with the following error:\n")
_EXITED = re.compile(r"^ProcessExitedException: process (\d+) terminated with (?:signal (SIG\w+)|exit code (\d+))")


def name_spawned(failure: Failure, nodes: int, node: int, processes: int, *, out_of_memory: bool) -> None:
    """Let the failure of a program be that of the process it has spawned, where torch names one as the reason.

    Its rank follows from its number as in torch's examples, where each node spawns as many `processes` as it is asked
    for. On several nodes that spawn another number the rank is not known.
    """
    raised, exited = _RAISED.search(failure.traceback), _EXITED.match(failure.message)
    if raised is not None and failure.message.startswith("ProcessRaisedException"):
        local = int(raised[1])
        failure.traceback = failure.traceback[raised.end() :]
        _take_error(failure)
    elif exited is not None:
        local, name, code = int(exited[1]), exited[2], exited[3]
        failure.traceback, failure.error_type = "", None
        failure.signal, failure.exit_code = name, int(code) if code else None
        failure.message = f"killed by {name}" if name else f"exit code {code}"
        if name == "SIGKILL" and out_of_memory:
            failure.oom, failure.message = True, f"killed by the kernel: out of memory{memory_limit()}"
    else:
        return
    failure.local_rank = local
    failure.rank = node * processes + local if nodes == 1 or local < processes > 1 else None
    if failure.rank is None:
        failure.message = f"spawned process {local}: {failure.message}"


def _take_error(failure: Failure) -> None:
    """Message and class of the error that the traceback ends with: the lines after those of its last call."""
    lines = failure.traceback.strip().splitlines()
    last = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
    kind, colon, text = "\n".join(lines[last + 1 :]).partition(":")
    name = kind.rpartition(".")[2].strip()
    failure.error_type = clip(name, 64) if name.isidentifier() else None
    failure.message = f"{name}{colon}{text}"
