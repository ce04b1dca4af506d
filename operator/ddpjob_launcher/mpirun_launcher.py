"""The launcher mpirun: node 0 runs mpirun, which starts the ranks of all nodes; the others serve it by ssh.

Delivered beside launcher.py, under the same rules: the standard library only, Python >= 3.8. For each rank mpirun
starts this file: it runs the worker, hands signals on, and leaves in the node's folder how the worker ended. From there
the node's report is made, since mpirun itself tells one exit code alone, and ends all other ranks for it.
"""
# ruff: noqa: ANN401 -- ends of workers, in the words of torch's ProcessFailure

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpjob_launcher import launcher, remote_shell
else:
    # Those beside this file, not those of a package which an image may have.
    import launcher
    import remote_shell

_FOLDER = "DDPJOB_NODE_FOLDER"
# There from the moment on at which this node is to stop.
_STOPPING = "stopping"
_PAUSE = 0.1


def hostfile(hosts: list[str], slots: int) -> str:
    """The nodes in the order of their ordinals: mpirun counts ranks in the order of the lines."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def mpirun_command(mpirun: str, hosts: Path, ranks: int, rank_command: list[str]) -> list[str]:
    """The launch line. A rank is bound to no core: torch has threads of its own."""
    options = ["--hostfile", str(hosts), "-np", str(ranks), "--map-by", "slot", "--bind-to", "none"]
    return [mpirun, *options, *rank_command]


def node_name(first: str, ordinal: int, nodes: int) -> str:
    """The name of a node, given that of node 0, `<pod>-<ordinal>.<service>...`: ordinals are equally long."""
    host, dot, domain = first.partition(".")
    return f"{host.rpartition('-')[0]}-{ordinal:0{len(str(nodes - 1))}d}{dot}{domain}"


def error_file(folder: Path, rank: int) -> Path:
    """Where the worker of a rank records its exception: each in a folder of its own, beside its last stack."""
    return folder / f"error-{rank}" / "error.json"


class Ranks:
    """The ranks of this node, by the files that they leave in its folder."""

    def __init__(self, folder: Path) -> None:
        """Look into a folder that exists."""
        self._folder = folder
        self.error_files: dict[int, str] = {}

    def begun(self) -> dict[int, dict[str, int]]:
        """Rank to its local rank and process id."""
        return self._read(".begun")

    def ended(self) -> dict[int, dict[str, int]]:
        """Rank to its local rank, its worker's exit code (negative for a signal), and whether mpirun ended it."""
        return self._read(".ended")

    def pids(self) -> dict[int, int]:
        """Local rank to process id of the workers that have not ended."""
        ended = self.ended()
        return {entry["localRank"]: entry["pid"] for rank, entry in self.begun().items() if rank not in ended}

    def failures(self) -> dict[int, Any]:
        """Rank to the end of each worker that failed by itself, in the words of torch's ProcessFailure.

        One that mpirun has ended counts where it has recorded an exception before: that it was about to leave by itself
        may be the reason why another lost the connection to it, and was quicker.
        """
        found: dict[int, Any] = {}
        ended = self.ended()
        for rank, begun in self.begun().items():
            end = ended.get(rank, {**begun, "code": -signal.SIGKILL, "time": int(time.time()), "aborted": True})
            file = error_file(self._folder, rank)
            data: dict[str, Any] = {}
            with contextlib.suppress(OSError, ValueError):
                data = json.loads(file.read_text())
            if end["code"] == 0 or (end["aborted"] and (not data or _left_on_purpose(end["code"], data))):
                continue
            self.error_files[end["localRank"]] = str(file)
            found[rank] = SimpleNamespace(
                local_rank=end["localRank"],
                exitcode=1 if end["aborted"] and end["code"] < 0 else end["code"],
                error_file=str(file),
                error_file_data=data,
                timestamp=end["time"],
            )
        return found

    def agreed_to_stop(self) -> bool:
        """Whether ranks have saved and left together, and none has failed."""
        codes = [end["code"] for end in self.ended().values() if not end["aborted"]]
        return launcher.AGREED_STOP in codes and all(code in (0, launcher.AGREED_STOP) for code in codes)

    def _read(self, ending: str) -> dict[int, dict[str, int]]:
        found: dict[int, dict[str, int]] = {}
        for path in self._folder.glob(f"*{ending}"):
            with contextlib.suppress(OSError, ValueError):
                found[int(path.stem)] = json.loads(path.read_text())
        return found


def _left_on_purpose(code: int, data: dict[str, Any]) -> bool:
    """Whether an end was agreed upon by all ranks, which leaves a SystemExit as well."""
    message = data.get("message")
    said = str(message.get("message") if isinstance(message, dict) else message)
    return code == launcher.AGREED_STOP or said.endswith(f": {launcher.AGREED_STOP}")


class MissingNodes:
    """What keeps node 0 from each node that it waits for, told as one: of the first of them, and of how many."""

    def __init__(self, page: launcher.WaitPage) -> None:
        """Tell it to a page."""
        self._page = page
        self._problems: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def of(self, ordinal: int) -> SimpleNamespace:
        """The page of one node."""
        return SimpleNamespace(tell=lambda reason, message: self._tell(ordinal, (reason, message)))

    def found(self, ordinal: int) -> None:
        """A node is not waited for any more."""
        self._tell(ordinal, None)

    def _tell(self, ordinal: int, problem: tuple[str, str] | None) -> None:
        with self._lock:
            self._problems.pop(ordinal, None)
            if problem is not None:
                self._problems[ordinal] = problem
            if self._problems:
                reason, message = self._problems[min(self._problems)]
                more = len(self._problems) - 1
                self._page.tell(reason, f"{message}, and {more} more" if more else message)


class MpirunAgent(launcher.Agent):
    """Node 0: mpirun. Any other: sshd, until node 0 tells the end."""

    _mpirun: subprocess.Popen[bytes] | None = None
    _server: remote_shell.Server | None = None

    def _launch(self) -> None:
        environment = os.environ
        kind, program = launcher.program_to_run()
        nodes, processes = int(environment.get("DDPJOB_NODES", "1")), int(environment.get("DDPJOB_PROCS_PER_NODE", "1"))
        self._context = self._ranks = Ranks(Path(self._folder))
        self._rounds, self._oom_kills = 1, launcher.oom_kills()
        self._prepare(processes)
        environment[_FOLDER] = self._folder
        if os.getuid() == 0:
            # mpirun refuses root otherwise, whom a container's own walls keep in.
            for prefix in ("OMPI", "PRTE"):
                environment[f"{prefix}_ALLOW_RUN_AS_ROOT"] = environment[f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        first = launcher.absolute_name(environment.get("MASTER_ADDR", ""))
        environment["MASTER_ADDR"] = first if nodes > 1 else "127.0.0.1"
        launcher.say(f"{launcher.this_node(program)} of {nodes}, processes {processes}, launcher mpirun")
        if environment.get("DDPJOB_NODE_RANK", "0") == "0":
            self._run_mpirun(nodes, processes, kind, program)
        else:
            self._serve()

    def _run_mpirun(self, nodes: int, processes: int, kind: str, program: str) -> None:
        mpirun = remote_shell.needed_program("mpirun", "Open MPI (Debian's openmpi-bin)")
        folder, hosts, client = Path(self._folder), ["localhost"], None
        if nodes > 1:
            port = launcher.rendezvous_port()
            client = remote_shell.Client(folder, port)
            hosts = self._await_all(client, nodes, port)
            _use(client, nodes)
        (folder / "hostfile").write_text(hostfile(hosts, processes))
        rank = [sys.executable, "-u", str(Path(__file__).absolute()), kind, program, *sys.argv[1:]]
        command = mpirun_command(mpirun, folder / "hostfile", nodes * processes, rank)
        with self._lock:
            if not self._stopping:
                self._mpirun = subprocess.Popen(command, start_new_session=True)
        self._park_if_stopping()
        assert self._mpirun is not None  # noqa: S101 -- without it this thread is parked for good
        code = self._mpirun.wait()
        self._park_if_stopping()
        self._judge(code, of_mpirun=True)
        if client is not None:
            client.tell_end(hosts[1:], launcher.container_code(code))

    def _await_all(self, client: remote_shell.Client, nodes: int, port: int) -> list[str]:
        """Wait until every other node takes a command, and this one has its name; answer the addresses of all."""
        first = os.environ["MASTER_ADDR"]
        begun, timeout = time.monotonic(), launcher.rendezvous_timeout()
        page = launcher.WaitPage(int(os.environ.get("DDPJOB_METRICS_PORT", "0")))
        missing = MissingNodes(page)

        def reached(ordinal: int) -> str:
            host = node_name(first, ordinal, nodes)
            own = missing.of(ordinal)
            launcher.await_node(ordinal, host, port, timeout, connect=ordinal > 0, page=own, begun=begun)
            missing.found(ordinal)
            address = remote_shell.address_of(host)
            problem = client.probe(address) if ordinal else ""
            if problem:
                raise launcher.LaunchError(f"node {ordinal} ({host}:{port}) does not take the job's ssh key: {problem}")
            return address

        # Not left as a context: that waits for all, also where one has said why it can never be reached.
        pool = ThreadPoolExecutor(remote_shell.AT_A_TIME)
        asked = [pool.submit(reached, ordinal) for ordinal in range(nodes)]
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
        self._server = server = remote_shell.Server(Path(self._folder), launcher.rendezvous_port())
        deadline = time.monotonic() + launcher.rendezvous_timeout()
        left: float | None = None
        while (code := server.told_end()) is None:
            server.check()
            now, sessions = time.monotonic(), server.sessions()
            if not sessions and now > deadline:
                raise launcher.LaunchError("node 0 did not start mpirun in time: look at what its pod writes")
            left = None if any(sessions) or not sessions else left or now
            if left is not None and now - left > remote_shell.LAST_WORD:
                break
            time.sleep(_PAUSE)
        self._park_if_stopping()
        self._judge(code)

    def _judge(self, code: int | None, *, of_mpirun: bool = False) -> None:
        """Tell how this node ended; `code` is mpirun's own end, None where node 0 has left without telling it.

        What mpirun itself ended with, `of_mpirun`, is told by the node where it ran, unless its ranks tell more.
        """
        failures = self._ranks.failures()
        if self._ranks.agreed_to_stop():
            self._end(launcher.AGREED_STOP, message="the ranks agreed to stop", stopped=True)
        elif failures:
            self._end(*self._ends(failures))
        elif code is None:
            lost = "ConnectionError: connection lost: node 0 is gone, and mpirun with it"
            self._end(1, [{"exitCode": 1, "time": time.time(), "message": lost}])
        elif code == 0:
            self._end(0)
        elif of_mpirun and code < 0:
            self._end(launcher.container_code(code), [launcher.killed_program("mpirun", -code, self._oom_kills)])
        elif of_mpirun and self._ranks.begun():
            # Of another node's rank that failed its own node tells, and that counts more.
            lost = f"connection lost: mpirun ended all ranks, with exit code {code}: see the lines above"
            self._end(1, [{"exitCode": code, "time": time.time(), "message": lost}])
        elif self._ranks.begun():
            self._end(launcher.AGREED_STOP, message="mpirun ended the ranks of this node: see the others", stopped=True)
        else:
            problem = launcher.LaunchError(f"mpirun could not start the ranks (exit code {code}): see the lines above")
            self._end(1, [launcher.own_failure(problem)])

    def _agreed(self) -> bool:
        return self._ranks.agreed_to_stop()

    def _is_alive(self, pid: int) -> bool:
        """Whether a worker runs: they are children of others here."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    def _outlast(self, context: Any, number: int = 0) -> str:
        begun = time.monotonic()
        # Whatever a rank ends with from now on is no reason for mpirun to end those that still save.
        (Path(self._folder) / _STOPPING).touch()
        told = super()._outlast(context, number)
        # Ranks of other nodes may be a little later, and are ended with mpirun, which ends with any node that leaves.
        while time.monotonic() - begun < self._patience and not self._is_over():
            time.sleep(_PAUSE)
        return told

    def _is_over(self) -> bool:
        if self._server is not None:
            return self._server.told_end() is not None or not any(self._server.sessions())
        return self._mpirun is None or self._mpirun.poll() is not None


def _use(client: remote_shell.Client, nodes: int) -> None:
    """Let Open MPI 4 and 5 reach the nodes by our ssh, and from here alone: the others are no clients of each other.

    Each connection stays for as long as the daemon that it has started: by its end a node knows that mpirun is gone. So
    there have to be as many at a time as there are nodes, where the default is 128.
    """
    agent = " ".join(client.command)
    os.environ.update(
        OMPI_MCA_plm_rsh_agent=agent,
        PRTE_MCA_plm_ssh_agent=agent,
        OMPI_MCA_plm_rsh_no_tree_spawn="1",
        PRTE_MCA_plm_ssh_no_tree_spawn="1",
        OMPI_MCA_plm_rsh_num_concurrent=str(max(nodes, 128)),
        PRTE_MCA_plm_ssh_num_concurrent=str(max(nodes, 128)),
        OMPI_MCA_orte_leave_session_attached="1",
        PRTE_MCA_prte_leave_session_attached="1",
    )


def run_rank(kind: str, program: str, arguments: list[str]) -> int:
    """Run the worker of one rank, and leave how it ended in the node's folder; answer what mpirun is to see."""
    folder, rank = Path(os.environ[_FOLDER]), int(os.environ["OMPI_COMM_WORLD_RANK"])
    file = error_file(folder, rank)
    file.parent.mkdir()
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(file)
    worker = [sys.executable, "-u", str(Path(launcher.__file__).absolute()), launcher.WORKER, "ask", kind, program]
    told: list[int] = []
    process = subprocess.Popen([*worker, *arguments], start_new_session=True, preexec_fn=_end_with_parent)  # noqa: PLW1509 -- one thread

    def hand_on(number: int, _: object) -> None:
        told.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

    for number in launcher.STOP_SIGNALS:
        signal.signal(number, hand_on)
    begun = {"localRank": int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]), "pid": process.pid}
    remote_shell.write_whole(folder / f"{rank}.begun", begun)
    code = process.wait()
    # mpirun alone signals us: the launcher, when it is to stop, signals the worker itself.
    ended = {**begun, "code": code, "time": time.time(), "aborted": bool(told)}
    remote_shell.write_whole(folder / f"{rank}.ended", ended)
    # A rank that has saved and left on purpose is no reason for mpirun to end the others.
    on_purpose = code == launcher.AGREED_STOP or (folder / _STOPPING).exists()
    return 0 if on_purpose else launcher.container_code(code)


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG: mpirun kills those whom it has started, not their children.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(run_rank(sys.argv[1], sys.argv[2], sys.argv[3:]))
