"""How long what the threads of a process group use has to live."""

import ctypes


def keep_for_ever(thing: object) -> None:
    """Let nothing run the destructor of a process group or of the tensors of a collective, not even the end of Python.

    A thread of the group may be the last to let go of a tensor, for which it needs the interpreter's lock. The
    destructor of a group waits for that thread while it holds the lock, and once the interpreter is at its end, asking
    for the lock aborts the process: on a busy machine a training that is done would hang or fail.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
