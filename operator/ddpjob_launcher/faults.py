"""Where the Python stack of a worker is kept that crashed in native code."""

import os


def fault_file(error_file: str) -> str:
    """The file of that stack, given the worker's error file."""
    return os.path.join(os.path.dirname(error_file), "fault.txt")  # noqa: PTH118, PTH120 -- each worker imports this
