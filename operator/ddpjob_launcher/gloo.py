"""The threads of a gloo process group, at the end of the program."""

# ruff: noqa: PTH123, PTH208 -- pathlib is one of the modules that the worker leaves out

from __future__ import annotations

import os
import sys
import time

# Longest wait in seconds: a thread of the program's own may never be idle.
_PATIENCE = 1.0


def let_threads_finish() -> None:
    """Wait until no native thread of this process is busy; to be called before the interpreter finalizes.

    A thread of gloo releases the tensors of a collective some time after the program has their result. If it is the
    last to hold one, it needs the interpreter's lock, and asking for that lock while the interpreter finalizes aborts
    the process ("terminate called without an active exception", pytorch/pytorch#179291): on a busy node a training
    that had finished would count as failed.
    """
    if "torch.distributed" not in sys.modules:
        return
    end, looks = time.monotonic() + _PATIENCE, 0
    # Two looks without one: a thread that had waited for the lock does not run at the moment it gets it.
    while looks != 2 and time.monotonic() < end:  # noqa: PLR2004 -- as said
        time.sleep(0.001)
        looks = 0 if _busy() else looks + 1


def _busy() -> bool:
    threading = sys.modules.get("threading")
    pythons = {thread.native_id for thread in threading.enumerate()} if threading else set()
    for name in os.listdir("/proc/self/task"):
        if int(name) in pythons or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/self/task/{name}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "R":
            return True
    return False
