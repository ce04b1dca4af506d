"""A process that has torch loaded, and waits for the place of a worker, which it then takes."""

# ruff: noqa: PLC0415 -- what a worker does is loaded once there is one
# ruff: noqa: PTH120 -- pathlib is one of the modules that the worker leaves out

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib import import_module

from .torch_import import AtImport, follow_spawned, has_libuv, watch_groups

MODULE = "spare"
# Programs with another one are not replaced, and need no spare process.
_LIBRARY = "ddpjob_trainer"


def run(arguments: list[str]) -> None:  # noqa: ARG001 -- they come with the place
    """Load torch, wait for a place, and run the program of that rank; end if none comes."""
    finder = AtImport("ask")
    sys.meta_path.insert(0, finder)
    _load()
    given = sys.stdin.buffer.read()
    if not given:
        return
    place = json.loads(given)
    os.environ.clear()
    os.environ.update(place["environment"])
    _open_files(place["outputs"])
    libuv, kind, program, *own = place["arguments"]
    folder = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if folder:
        watch_groups(folder)
        follow_spawned("yes" if has_libuv() else "no", folder)
    from .worker import run_program

    run_program(libuv, kind, program, own)


def _load() -> None:
    try:
        import torch
        import torch.distributed
        import torch.nn.parallel
        import torch.utils.data  # noqa: F401
    except ImportError:
        # The program says what is missing.
        return
    with contextlib.suppress(ImportError):
        import_module(_LIBRARY)


def _open_files(outputs: list[str | None]) -> None:
    sys.stdout.flush()
    for number, path in enumerate((os.devnull, *outputs)):
        if path is not None:
            opened = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
