"""Whether a program ended by what each further start would meet again: the interpreter could not even begin it.

Nothing that may be different the next time, or on another node, counts: no data, no connection, no shared library.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

# What a parser of arguments exits with when it refuses them.
_USAGE = 2
_PARSERS = ("argparse", "optparse", "click", "typer", "fire", "tyro")


def is_permanent(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether the error is such an end, given its traceback from the program's first frame on."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" or _has_group():
        # The program could be started once, or has met the other ranks.
        return False
    if trace is None:
        # Its source could not be read: it is not a text, not Python, or not a file.
        return isinstance(error, (SyntaxError, ValueError, PermissionError, IsADirectoryError))
    if isinstance(error, SystemExit):
        # The second is what `python -m` itself says of a module that it does not find.
        return bool(_refusal(error, trace)) or (isinstance(error.code, str) and _module(_last(trace)) == "runpy")
    if isinstance(error, SyntaxError):
        # Text that the program itself compiles has no file.
        return bool(error.filename) and not str(error.filename).startswith("<")
    # A library of the system, such as a driver's, may be missing from one node alone.
    return isinstance(error, ImportError) and ".so" not in str(error)


def said(error: BaseException, trace: TracebackType | None) -> str:
    """What the message lacks: what a parser of arguments says when it exits, or who has MPI; "" if nothing."""
    if isinstance(error, RuntimeError) and "have MPI built in" in str(error):
        return (
            "this torch has no MPI, or does not show it, as mpirun has not started this process: set spec.launcher to "
            "mpirun, or let the program use gloo or nccl"
        )
    return _refusal(error, trace).strip() if isinstance(error, SystemExit) and trace is not None else ""


def _refusal(error: SystemExit, trace: TracebackType) -> str:
    last = _last(trace)
    if error.code != _USAGE or _module(last).partition(".")[0] not in _PARSERS:
        return ""
    # argparse hands its message to the function that exits, others exit because of an exception.
    words = last.f_locals.get("message") or getattr(error.__context__, "message", None)
    return words if isinstance(words, str) and words.strip() else "the arguments are refused"


def _has_group() -> bool:
    """Whether this process belongs to a process group of torch."""
    distributed: Any = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    return bool(is_initialized and is_initialized())


def _last(trace: TracebackType) -> Any:  # noqa: ANN401 -- a frame
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def _module(frame: Any) -> str:  # noqa: ANN401 -- a frame
    return str(frame.f_globals.get("__name__", ""))
