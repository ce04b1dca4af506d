"""The launcher python: one worker per node, which finds its place in RANK, WORLD_SIZE and MASTER_*."""

# ruff: noqa: ANN401 -- ends of workers, in the words of torch's ProcessFailure

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from .agent import Agent
from .cgroup import oom_kills
from .commands import command
from .dns import absolute_name
from .log import say
from .program import prepare_environment
from .rendezvous import await_node_0
from .settings import read_master
from .signals import AGREED_STOP
from .spawned import name_spawned


class LoneWorker:
    """The only worker of a node, as the agent knows those of torchrun."""

    def __init__(self, process: subprocess.Popen[bytes], error_file: str) -> None:
        """Take a started process."""
        self._process = process
        self.error_files = {0: error_file}

    def pids(self) -> dict[int, int]:
        """Local rank to process id."""
        return {0: self._process.pid}

    def failure(self, code: int) -> Any:
        """The end with this exit code, negative for a signal, in the words of torch's ProcessFailure."""
        file = self.error_files[0]
        try:
            with open(file) as error:  # noqa: PTH123 -- a path of the environment
                data = json.load(error)
        except (OSError, ValueError):
            data = {}
        return SimpleNamespace(
            local_rank=0, exitcode=code, error_file=file, error_file_data=data, timestamp=time.time()
        )


class PythonAgent(Agent):
    """Starts one worker, once."""

    def _launch(self) -> None:
        environment, settings = os.environ, self._settings
        master = read_master(environment)
        prepare_environment(settings, master.processes, self._folder)
        say(f"{settings.this_node()}, launcher python")
        host = absolute_name(master.address, settings.namespace)
        if settings.nodes == 1:
            host = "127.0.0.1"
        else:
            # What would serve the store is the program itself: whether it answers is torch's to wait for.
            await_node_0(settings, host, master.port, connect=False)
        environment["MASTER_ADDR"] = host
        error_file = os.path.join(self._folder, "error.json")  # noqa: PTH118 -- it goes into the environment
        environment["TORCHELASTIC_ERROR_FILE"] = error_file
        worker = command("worker", "ask", settings.program_kind, settings.program, *sys.argv[1:])
        with self._lock:
            if not self._stopping:
                process = subprocess.Popen(worker, start_new_session=True)
                self._context = LoneWorker(process, error_file)
                self._rounds, self._oom_kills = 1, oom_kills()
        self._park_if_stopping()
        code = process.wait()
        self._park_if_stopping()
        if code == AGREED_STOP:
            self._end_agreed()
        elif code:
            exit_code, failures = self._ends({settings.node: self._context.failure(code)})
            out_of_memory = oom_kills() > self._oom_kills
            name_spawned(failures[0], settings.nodes, settings.node, master.processes, out_of_memory=out_of_memory)
            self._end(exit_code, failures)


AGENT = PythonAgent
