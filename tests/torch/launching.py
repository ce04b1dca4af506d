"""Launchers as pods would run them: several nodes on loopback, with all that they say and report."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpjob_core.api.launchers import Launcher
from ddpjob_launcher.archive import FILE, archive
from tests.ports import free_port


class Node:
    """One launcher process as a pod would run it."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self._log, self._output = folder / "termination-log", folder / "output"
        self._log.touch()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder.parent,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "DDPJOB_TERMINATION_LOG": str(self._log)},
                start_new_session=True,
            )

    def end(self, timeout: float = 120) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs after {timeout} s:\n{self.output}")

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def reported(self) -> bool:
        return self._log.stat().st_size > 0

    @property
    def report(self) -> dict[str, Any]:
        text = self._log.read_bytes()
        assert len(text) <= 2048
        report: dict[str, Any] = json.loads(text)
        return report


class Job:
    """Launchers of one job on loopback, each node with an address of its own that sorts by the ordinal."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._nodes, self._port = folder, list[Node](), free_port()
        for name in [name for name in os.environ if name.startswith(("PET_", "DDPJOB_", "OMP_"))]:
            monkeypatch.delenv(name)

    def program(self, text: str) -> str:
        (self.folder / "train.py").write_text(text)
        return "train.py"

    def start(
        self,
        node: int,
        nodes: int,
        program: str,
        *arguments: str,
        kind: str = "script",
        processes: int = 2,
        backend: str = "c10d",
        launcher: str = "torchrun",
        timeout: int = 60,
        **more: str,
    ) -> Node:
        host = "127.0.0.1"
        rendezvous = (
            {
                "PET_RDZV_ENDPOINT": f"{host}:{self._port}",
                "PET_RDZV_CONF": f"is_host={int(node == 0)},join_timeout={timeout},read_timeout={timeout}",
            }
            if backend == "c10d"
            else {
                "PET_NODE_RANK": str(node),
                "PET_MASTER_ADDR": host,
                "PET_MASTER_PORT": str(self._port),
                "PET_RDZV_CONF": f"timeout={timeout}",
            }
        )
        environment = {
            **os.environ,
            "DDPJOB_NAME": "digits",
            "DDPJOB_NAMESPACE": "ml",
            "DDPJOB_ATTEMPT": "0",
            "DDPJOB_NODE_RANK": str(node),
            "DDPJOB_NODES": str(nodes),
            "DDPJOB_LAUNCHER": launcher,
            "DDPJOB_LAUNCHER_MODULE": Launcher(launcher).traits.module,
            # The programs serve no metrics, and all nodes have one address.
            "DDPJOB_METRICS_PORT": "0",
            "DDPJOB_GRACE_PERIOD_SECONDS": "30",
            "DDPJOB_PROGRAM": program,
            "DDPJOB_PROGRAM_KIND": kind,
            "DDPJOB_RENDEZVOUS_HOST": host,
            "DDPJOB_RENDEZVOUS_PORT": str(self._port),
            "DDPJOB_RENDEZVOUS_TIMEOUT": str(timeout),
            "PET_NNODES": str(nodes),
            "PET_NPROC_PER_NODE": str(processes),
            "PET_RDZV_BACKEND": backend,
            "PET_RDZV_ID": "uid-0",
            "PET_MAX_RESTARTS": "0",
            "PET_LOCAL_ADDR": f"127.0.0.{node + 1}",
            "GLOO_SOCKET_IFNAME": "lo",
            **rendezvous,
            **more,
        }
        if launcher in ("python", "mpirun"):
            environment = {name: value for name, value in environment.items() if not name.startswith("PET_")}
            environment["DDPJOB_PROCS_PER_NODE"] = str(processes)
            if launcher == "python":
                environment.update(RANK=str(node), WORLD_SIZE=str(nodes))
            environment.update({"MASTER_ADDR": host, "MASTER_PORT": str(self._port), **more})
        folder = self.folder / f"node-{node}"
        folder.mkdir()
        file = folder / FILE
        file.write_bytes(archive(Launcher(launcher).traits.module))
        started = Node(folder, [sys.executable, str(file), *arguments], environment)
        self._nodes.append(started)
        return started

    def both(self, program: str, *arguments: str, **options: Any) -> tuple[Node, Node]:
        return self.start(0, 2, program, *arguments, **options), self.start(1, 2, program, *arguments, **options)

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: all((self.folder / name).exists() for name in names), lambda: self._nodes[0].output)

    def clear(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.process.pid, signal.SIGKILL)
            node.process.wait()


def wait_until(condition: Callable[[], bool], explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)


@contextlib.contextmanager
def launchers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job whose launchers are gone when the test ends."""
    job = Job(folder, monkeypatch)
    try:
        yield job
    finally:
        job.clear()
