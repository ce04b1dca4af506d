"""Lifetime of what the threads of a process group use."""

import ctypes


def keep_forever(thing: object) -> None:
    """Never run the destructor of a process group or of the tensors of a collective, not even at the end of Python.

    A thread of the group may be the last to release a tensor, for which it needs the interpreter's lock. The destructor
    of a group waits for that thread while holding the lock, and once the interpreter is finalizing, requesting the lock
    aborts the process: on a busy machine a finished training would hang or fail.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
