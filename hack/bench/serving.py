"""A server in a process of its own, so that what it costs is not the measured process's."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def served(serve: Callable[[Connection], None]) -> Iterator[int]:
    """The port of a server.

    Args:
        serve: runs it, and sends its port.
    """
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    yield ours.recv()
    server.kill()
    server.join()
