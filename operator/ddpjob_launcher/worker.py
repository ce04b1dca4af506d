"""The worker: runs the program of one rank, and records how it ends.

The program finds every module loaded that this one imports, and none of its own in their place: so these are few.
"""

# ruff: noqa: PTH100, PTH109, PTH110, PTH112, PTH118, PTH120, PTH123 -- pathlib is one of the modules that are left out

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import importlib.machinery
import json
import os
import runpy
import sys
import time
import traceback
from types import ModuleType, TracebackType

from .faults import fault_file
from .gloo import let_threads_finish
from .torch_import import AtImport, note_training_alone
from .trackers import name_run

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def run(arguments: list[str]) -> None:
    """Run a program: whether torch has libuv (yes, no, ask), its kind, its path or name, its own arguments."""
    libuv, kind, program, *own = arguments
    run_program(libuv, kind, program, own)


def run_program(libuv: str, kind: str, program: str, arguments: list[str]) -> None:
    """Run the program as `python -u program` (or `-m program`) does and record what ends it in torch's error file."""
    pid, main = os.getpid(), ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv = [program, *arguments]
    sys.orig_argv = [sys.executable, "-u", *(["-m"] if kind == "module" else []), *sys.argv]
    sys.excepthook = _without_our_frames
    _record_faults()
    name_run(os.environ)
    folder = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
    # The first to be registered is the last to be called.
    atexit.register(let_threads_finish)
    sys.meta_path.insert(0, AtImport(libuv, folder))
    try:
        _execute(kind, program, main.__dict__)
    except BaseException as error:
        if os.getpid() == pid:
            _record(error)
        raise
    finally:
        if folder and os.getpid() == pid:
            note_training_alone(folder)


def _execute(kind: str, program: str, namespace: dict[str, object]) -> None:
    package = kind == "script" and (os.path.isdir(program) or program.endswith((".zip", ".pyz")))
    folder = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(program))
    if package or not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.abspath(program) if package else folder)
    if kind == "module" or package:
        # What the interpreter itself calls for `-m`.
        runpy._run_module_as_main("__main__" if package else program, alter_argv=not package)  # type: ignore[attr-defined] # noqa: SLF001
        return
    path = os.path.join(os.getcwd(), program)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    namespace.update(__file__=path, __loader__=loader, __cached__=None)
    exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), namespace)  # noqa: S102 -- the pod's purpose


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames, and what stands before them: the interpreter's, which has started us."""
    inner = trace
    while inner is not None and not _is_ours(inner):
        inner = inner.tb_next
    if inner is None:
        return trace
    while inner is not None and _is_ours(inner):
        inner = inner.tb_next
    return inner


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)


def _without_our_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    trace = _trimmed(trace)
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _record_faults() -> None:
    # A crash in native code leaves no exception: the Python stack at that moment goes next to torch's error file.
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not faulthandler.is_enabled():
        faulthandler.enable(os.open(fault_file(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), all_threads=False)


def _record(error: BaseException) -> None:
    """Write the error in the form of torch's @record, unless the program has done so itself."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    success = isinstance(error, SystemExit) and not error.code
    if success or not path or os.path.exists(path):
        return
    try:
        message = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 -- a __str__ of the program's own
        message = type(error).__name__
    trace = _trimmed(error.__traceback__)
    stack = "".join(traceback.format_exception(type(error), error, trace))
    extra = {"py_callstack": stack[-16384:], "timestamp": str(int(time.time())), "time": time.time()}
    # What judges an error must not itself keep it from being recorded.
    with contextlib.suppress(Exception):
        from .permanent import is_permanent, said  # noqa: PLC0415 -- seldom needed

        extra["permanent"] = is_permanent(error, trace)
        message = ": ".join(filter(None, (message, said(error, trace))))
    with contextlib.suppress(OSError), open(path, "w") as file:
        json.dump({"message": {"message": message[:4096], "extraInfo": extra}}, file)
