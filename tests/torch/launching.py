"""Launchers as pods would run them: several nodes on loopback, with all that they say and report."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked import forked_into

from ddpjob_core.api.launchers import Launcher
from ddpjob_launcher.archive import FILE, archive
from tests.ports import free_port

WITHOUT_WRAPPER = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "ddpjob_torch"]
"""
"""A sitecustomize by which torch is as in an image that is not ours."""


class Node:
    """One launcher process as a pod would run it."""

    def __init__(self, folder: Path, program: list[str], environment: dict[str, str], *, fresh: bool) -> None:
        self._log, self._output = folder / "termination-log", folder / "output"
        self._log.touch()
        environment = {**environment, "DDPJOB_TERMINATION_LOG": str(self._log)}
        self._process = (
            _Command(self._output, program, environment, folder.parent)
            if fresh
            else forked_into(self._output, program, environment, folder.parent)
        )

    def end(self, timeout: float = 120) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            pytest.fail(f"still runs after {timeout} s:\n{self.output}")
        return self._process.exitcode

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def stop(self) -> None:
        """What the kubelet sends when the pod is deleted."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it and all that it has started."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()

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


class _Command:
    """A process of a new interpreter, with what is used of multiprocessing's."""

    def __init__(self, file: Path, program: list[str], environment: dict[str, str], folder: Path) -> None:
        with file.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *program],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def join(self, timeout: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def terminate(self) -> None:
        self._process.terminate()


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
        fresh: bool = False,
        pod: str = "",
        without: Sequence[str] = (),
        **more: str,
    ) -> Node:
        """Start the launcher of a node.

        Args:
            pod: name of its folder, where it is not the node's first pod.
            without: variables of the environment that it does not get.
            fresh: by a new interpreter, which has not yet loaded torch.
            more: variables of the environment.
        """
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
            # They load no torch.
            fresh = True
            environment = {name: value for name, value in environment.items() if not name.startswith("PET_")}
            environment["DDPJOB_PROCS_PER_NODE"] = str(processes)
            if launcher == "python":
                environment.update(RANK=str(node), WORLD_SIZE=str(nodes))
            environment.update({"MASTER_ADDR": host, "MASTER_PORT": str(self._port), **more})
        environment = {name: value for name, value in environment.items() if name not in without}
        folder = self.folder / (pod or f"node-{node}")
        folder.mkdir()
        file = folder / FILE
        file.write_bytes(archive(Launcher(launcher).traits.module))
        started = Node(folder, [str(file), *arguments], environment, fresh=fresh)
        self._nodes.append(started)
        return started

    def both(self, program: str, *arguments: str, **options: Any) -> tuple[Node, Node]:
        return self.start(0, 2, program, *arguments, **options), self.start(1, 2, program, *arguments, **options)

    def wait_for(self, *names: str) -> None:
        wait_until(lambda: all((self.folder / name).exists() for name in names), lambda: self._nodes[0].output)

    def clear(self) -> None:
        for node in self._nodes:
            node.kill()


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
