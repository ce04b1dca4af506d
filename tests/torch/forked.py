"""Processes that are forked from one that has loaded torch: loading it is most of what a short training takes.

From the program's first line to its last all is as in a process of its own: its arguments, environment, output, session
and exit code, its process group and its collectives. The interpreter's own end is not: nothing is taken down. Who tests
that, or what a user types, starts real commands.
"""

import contextlib
import multiprocessing
import os
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

# An optimizer's first step loads what compiles models, without a need.
LOADED = [
    "torch",
    "torch._dynamo",
    "torch.distributed.run",
    "ddpjob_trainer.loop.training_loop",
    "ddpjob_trainer.observability.telemetry",
]
"""What is loaded before the first fork."""


class Rank:
    """A running process of a training."""

    def __init__(self, process: ForkServerProcess, output: Connection) -> None:
        self._process = process
        self.output = os.fdopen(os.dup(output.fileno()), encoding="utf-8", errors="replace")
        output.close()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def terminate(self) -> None:
        self._process.terminate()

    def end(self) -> tuple[int, str]:
        """Its exit code, or minus the signal that killed it, and what it said that nobody has read yet."""
        said = self.output.read()
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode, said

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.output.close()


@contextlib.contextmanager
def forked(program: Sequence[str], environments: Sequence[Mapping[str, str]]) -> Iterator[list[Rank]]:
    """Running processes of one program, one for each environment, killed at the end.

    Args:
        program: what one would give to python: `-m module`, `-c code` or a file, with arguments.
        environments: of the processes, whole.
    """
    context = _context()
    ranks: list[Rank] = []
    try:
        for environment in environments:
            output, said = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(tuple(program), dict(environment), said, str(Path.cwd())))
            process.start()
            said.close()
            ranks.append(Rank(process, output))
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()


def forked_into(file: Path, program: Sequence[str], environment: Mapping[str, str], folder: Path) -> ForkServerProcess:
    """A running process in a session of its own that writes all it says into a file.

    Args:
        file: made or emptied.
        program: as for `forked`.
        environment: of the process, whole.
        folder: where it runs.
    """
    with file.open("wb") as output:
        said = Connection(os.dup(output.fileno()), readable=False)
    process = _context().Process(target=_run, args=(tuple(program), dict(environment), said, str(folder)))
    process.start()
    said.close()
    return process


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    # Read when torch is loaded.
    with patch.dict(os.environ, OMP_NUM_THREADS="1"):
        forkserver.ensure_running()
    return context


def _run(program: tuple[str, ...], environment: dict[str, str], said: Connection, folder: str) -> None:
    # As torchrun starts its workers: who signals a rank's group reaches no other.
    os.setsid()
    os.chdir(folder)
    multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]  # which is the default
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    said.close()
    os.environ.clear()
    os.environ.update(environment)
    try:
        match program:
            case ("-m", module, *arguments):
                sys.argv = [module, *arguments]
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            case ("-c", code, *arguments):
                sys.argv = ["-c", *arguments]
                main = sys.modules["__main__"] = ModuleType("__main__")
                exec(code, main.__dict__)  # noqa: S102 the test's own program
            case (file, *arguments):
                sys.argv = [file, *arguments]
                runpy.run_path(file, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 the interpreter does so
        # A program may have a hook of its own, which multiprocessing would pass over.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
