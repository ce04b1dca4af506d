"""The launcher mpirun: node 0 runs mpirun, which starts the ranks of all nodes; the others serve it by ssh.

For each rank mpirun starts `mpirun_ranks`: it runs the worker, hands signals on, and leaves in the node's folder how
the worker ended. From there the node's report is made, since mpirun itself reports one exit code, and ends all other
ranks for it.
"""

# ruff: noqa: ANN401 -- ends of workers, in the words of torch's ProcessFailure

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .agent import Agent
from .cgroup import oom_kills
from .commands import command
from .dns import absolute_name
from .errors import LaunchError
from .failures import killed_program, own_failure
from .log import say
from .mpirun_nodes import MissingNodes, hostfile, mpirun_command, mpirun_environment, node_name
from .mpirun_ranks import FOLDER, STOPPING, Ranks
from .program import prepare_environment
from .rendezvous import await_node
from .report import Failure
from .settings import read_master
from .signals import AGREED_STOP, container_code
from .ssh import AT_A_TIME, LAST_WORD, Client, Server, address_of, needed_program
from .wait_page import WaitPage

if TYPE_CHECKING:
    from .settings import Settings

_PAUSE = 0.1


class MpirunAgent(Agent):
    """Node 0: mpirun. Any other: sshd, until node 0 reports the end."""

    _mpirun: subprocess.Popen[bytes] | None = None
    _server: Server | None = None

    def __init__(self, settings: Settings, folder: str) -> None:
        """Make an agent that keeps its files in `folder`."""
        super().__init__(settings, folder)
        self._context = self._ranks = Ranks(Path(folder))

    def _launch(self) -> None:
        environment, settings = os.environ, self._settings
        master = read_master(environment)
        self._rounds, self._oom_kills = 1, oom_kills()
        prepare_environment(settings, master.processes, self._folder)
        environment[FOLDER] = self._folder
        if os.getuid() == 0:
            # mpirun refuses root otherwise, which a container confines anyway.
            for prefix in ("OMPI", "PRTE"):
                environment[f"{prefix}_ALLOW_RUN_AS_ROOT"] = environment[f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        first = absolute_name(master.address, settings.namespace)
        environment["MASTER_ADDR"] = first if settings.nodes > 1 else "127.0.0.1"
        say(f"{settings.this_node()}, processes {master.processes}, launcher mpirun")
        if settings.node == 0:
            self._run_mpirun(first, master.processes)
        else:
            self._serve()

    def _run_mpirun(self, first: str, processes: int) -> None:
        settings = self._settings
        mpirun = needed_program("mpirun", "Open MPI (Debian's openmpi-bin)")
        folder, hosts, client = Path(self._folder), ["localhost"], None
        if settings.nodes > 1:
            client = Client(folder, settings.rendezvous_port)
            hosts = self._await_all(client, first)
            os.environ.update(mpirun_environment(client.command, settings.nodes))
        (folder / "hostfile").write_text(hostfile(hosts, processes))
        rank = command("mpirun_ranks", settings.program_kind, settings.program, *sys.argv[1:])
        line = mpirun_command(mpirun, folder / "hostfile", settings.nodes * processes, rank)
        with self._lock:
            if not self._stopping:
                self._mpirun = subprocess.Popen(line, start_new_session=True)
        self._park_if_stopping()
        assert self._mpirun is not None  # noqa: S101 -- without it this thread is parked for good
        code = self._mpirun.wait()
        self._park_if_stopping()
        self._report_end(code, of_mpirun=True)
        if client is not None:
            client.report_end(hosts[1:], container_code(code))

    def _await_all(self, client: Client, first: str) -> list[str]:
        """Wait until every other node takes a command, and this one has its name; return the addresses of all."""
        settings, begun = self._settings, time.monotonic()
        port = settings.rendezvous_port
        page = WaitPage(settings.metrics_port)
        missing = MissingNodes(page)

        def reached(ordinal: int) -> str:
            host = node_name(first, ordinal, settings.nodes)
            await_node(settings, ordinal, host, port, connect=ordinal > 0, page=missing.of(ordinal), begun=begun)
            missing.found(ordinal)
            address = address_of(host)
            problem = client.probe(address) if ordinal else ""
            if problem:
                raise LaunchError(f"node {ordinal} ({host}:{port}) does not accept the job's ssh key: {problem}")
            return address

        # Not left as a context: that waits for all, even if one has reported why it can never be reached.
        pool = ThreadPoolExecutor(AT_A_TIME)
        asked = [pool.submit(reached, ordinal) for ordinal in range(settings.nodes)]
        try:
            for each in as_completed(asked):
                each.result()
            return [each.result() for each in asked]
        finally:
            page.close()
            for each in asked:
                each.cancel()
            pool.shutdown(wait=False)

    def _serve(self) -> None:
        self._server = server = Server(Path(self._folder), self._settings.rendezvous_port)
        deadline = time.monotonic() + self._settings.rendezvous_timeout
        left: float | None = None
        while (code := server.reported_end()) is None:
            server.check()
            now, sessions = time.monotonic(), server.sessions()
            if not sessions and now > deadline:
                raise LaunchError("node 0 did not start mpirun in time: check the log of its pod")
            left = None if any(sessions) or not sessions else left or now
            if left is not None and now - left > LAST_WORD:
                break
            time.sleep(_PAUSE)
        self._park_if_stopping()
        self._report_end(code)

    def _report_end(self, code: int | None, *, of_mpirun: bool = False) -> None:
        """Report how this node ended; `code` is mpirun's own end, None where node 0 has left without reporting it.

        What mpirun itself ended with, `of_mpirun`, is reported by the node where it ran, unless its ranks say more.
        """
        failures = self._ranks.failures()
        if self._ranks.agreed_to_stop():
            self._end_agreed()
        elif failures:
            self._end(*self._ends(failures))
        elif code is None:
            lost = "ConnectionError: connection lost: node 0 is gone, and so is mpirun"
            self._end(1, [Failure(lost, time.time(), exit_code=1)])
        elif code == 0:
            self._end(0)
        elif of_mpirun and code < 0:
            self._end(container_code(code), [killed_program("mpirun", -code, self._oom_kills)])
        elif of_mpirun and self._ranks.begun():
            # A rank of another node that failed is reported by that node, and that counts more.
            lost = f"connection lost: mpirun ended all ranks with exit code {code}: see the lines above"
            self._end(1, [Failure(lost, time.time(), exit_code=code)])
        elif self._ranks.begun():
            message = "mpirun ended the ranks of this node: see the other nodes"
            self._end(AGREED_STOP, message=message, stopped=True)
        else:
            problem = LaunchError(f"mpirun could not start the ranks (exit code {code}): see the lines above")
            self._end(1, [own_failure(problem)])

    def _agreed(self) -> bool:
        return self._ranks.agreed_to_stop()

    def _is_alive(self, pid: int) -> bool:
        # The workers are children of other processes here.
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    def _wait_for_workers(self, context: Any, number: int = 0) -> str:
        begun = time.monotonic()
        # However a rank ends from now on, mpirun must not end those that still save.
        (Path(self._folder) / STOPPING).touch()
        late = super()._wait_for_workers(context, number)
        # Ranks of other nodes may be a little later, and are ended with mpirun, which ends with any node that leaves.
        while time.monotonic() - begun < self._patience and not self._is_over():
            time.sleep(_PAUSE)
        return late

    def _is_over(self) -> bool:
        if self._server is not None:
            return self._server.reported_end() is not None or not any(self._server.sessions())
        return self._mpirun is None or self._mpirun.poll() is not None


AGENT = MpirunAgent
