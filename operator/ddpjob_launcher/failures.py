"""What has failed, for the report: a worker, the launcher itself, or a program between the two."""

# ruff: noqa: ANN401 -- torch's objects, of whatever version the image has

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any

from .cgroup import memory_limit, oom_kills
from .commands import FILE
from .errors import CannotStart, LaunchError
from .faults import fault_file
from .report import Failure, clip
from .signals import AGREED_STOP, signal_name

if TYPE_CHECKING:
    from .settings import Settings

# Signals that a process gets for what it did, or that the kernel or a person sends; torch aborts where others are lost.
_OWN_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGKILL")
# What a program raises about its own data and code. All that can be about a connection is a RuntimeError or an OSError.
_OWN_ERRORS = (
    *("ArithmeticError", "AssertionError", "AttributeError", "FloatingPointError", "IndexError", "KeyError"),
    *("LookupError", "MemoryError", "NameError", "NotImplementedError", "OverflowError", "RecursionError"),
    *("TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError"),
)


def is_own(failures: list[Failure]) -> bool:
    """Whether a node has ended by what no other node can have caused, whatever that one was asked to do."""
    if any(failure.exit_code == AGREED_STOP for failure in failures):
        return False
    return any(
        failure.oom or failure.permanent or failure.signal in _OWN_SIGNALS or failure.error_type in _OWN_ERRORS
        for failure in failures
    )


def worker_failure(rank: int, end: Any, error_file: str, *, out_of_memory: bool = False) -> Failure:
    """One worker's end, from torch's ProcessFailure, for the report.

    With `out_of_memory` the kernel has killed processes of this container: a worker that was killed without a word, or
    that says its data loader was, is one of them.
    """
    # Torch's own times are whole seconds.
    failure = Failure("", time.time(), rank=rank, local_rank=end.local_rank)
    if end.exitcode < 0:
        failure.signal = signal_name(-end.exitcode)
        failure.message = f"killed by {failure.signal}"
    else:
        failure.exit_code = end.exitcode
        failure.message = f"exit code {end.exitcode}"
    recorded = end.error_file_data.get("message") if os.path.isfile(end.error_file) else None  # noqa: PTH113
    if isinstance(recorded, dict):
        extra = recorded.get("extraInfo") or {}
        failure.message = str(recorded.get("message") or failure.message)
        failure.traceback = str(extra.get("py_callstack") or "")
        failure.time = float(extra.get("time") or end.timestamp)
        failure.permanent = extra.get("permanent") is True
        name = failure.message.partition(":")[0]
        if name.isidentifier():
            failure.error_type = clip(name, 64)
    elif recorded:
        failure.message = str(recorded)
    elif end.exitcode < 0:
        with contextlib.suppress(OSError), open(fault_file(error_file), errors="replace") as file:  # noqa: PTH123
            # Innermost first: what stands behind the program's own calls is ours, and a list of extension modules.
            failure.traceback = file.read(4096).partition(f'  File "{FILE}{os.sep}')[0]
        failure.message = failure.traceback.partition("\n")[0] or failure.message
    if out_of_memory and (end.exitcode == -signal.SIGKILL or "killed by signal: Killed" in failure.message):
        failure.oom = True
        why = f"killed by the kernel: out of memory{memory_limit()}"
        failure.message = why if end.exitcode < 0 else f"{failure.message.rstrip('. ')} ({why})"
    return failure


def own_failure(error: BaseException, settings: Settings | None = None) -> Failure:
    """What kept the launcher from its work; with a traceback only where the message does not say enough."""
    name, cause = type(error).__name__, error.__cause__
    failure = Failure(f"{name}: {error}", time.time(), exit_code=1)
    if isinstance(error, LaunchError):
        failure.message = str(error)
        failure.permanent = isinstance(error, CannotStart)
    elif name == "RendezvousTimeoutError" and settings is not None:
        look = "their output" if settings.local else f"the job's pods: {settings.pods_of_the_job()}"
        failure.message = f"{name}: not all nodes joined in time. Check {look}"
    elif name == "RendezvousClosedError":
        failure.message = f"{name}: another node has already finished, so the workers cannot restart in place"
    elif not name.startswith(("Rendezvous", "Dist")):
        failure.traceback = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    elif cause:
        failure.message += f" ({type(cause).__name__}: {str(cause).partition(chr(10))[0]})"
    return failure


def killed_program(what: str, number: int, oom_kills_before: int) -> Failure:
    """A program around the workers was killed by a signal, by the kernel for its memory or not."""
    name = signal_name(number)
    failure = Failure(f"{what} itself was killed by {name}", time.time(), signal=name)
    if number == signal.SIGKILL and oom_kills() > oom_kills_before:
        failure.oom, failure.message = True, f"{what} was killed by the kernel: out of memory{memory_limit()}"
    return failure
