"""Pods as processes: what a kubelet does for a pod whose container is a group of processes of this machine."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from ddpjob.local.errors import LocalError
from ddpjob.local.kube import Objects
from ddpjob.local.network import LOOPBACK
from ddpjob.local.process import POD_VARIABLE, LocalProcess, mark_of
from ddpjob_core.api.base import format_time
from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import PODS
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.obstacle import START_ERROR

_LONGEST_MESSAGE: Final = 4096
_NOT_STARTED: Final = 128
_SPARE_THREADS: Final = 2
_LONGEST_END: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """How a pod is started: its process, and the files that hold its output and its termination message."""

    process: LocalProcess
    output: Path
    termination_log: Path


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended."""

    exit_code: int
    signal: int
    message: str
    reason: str = ""


class ProcessKubelet:
    """Starts a process for each pod and keeps the pod's status up to date."""

    def __init__(
        self,
        objects: Objects,
        *,
        prepare: Callable[[Json], Start],
        now: Callable[[], datetime],
        started: Callable[[Json, Path], None],
        nodes: int,
    ) -> None:
        """Args:
        objects: where the pods are stored.
        prepare: creates the folders of a pod and returns how it is started; raises LocalError.
        now: wall clock.
        started: called with each pod that was started and the file with its output.
        nodes: how many pods run at a time.
        """
        self._objects = objects
        self._prepare = prepare
        self._now = now
        self._started = started
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # A thread per node: the event loop has few, and a node that no thread waits for would seem to run forever.
        self._waiters = ThreadPoolExecutor(nodes + _SPARE_THREADS, thread_name_prefix="pod")
        self._watches: set[asyncio.Task[None]] = set()

    async def drained(self) -> None:
        """Wait until no pod runs."""
        while self._watches:
            await asyncio.wait(self._watches)

    def admit(self, pod: Json) -> None:
        """Start the pod's process."""
        try:
            start = self._prepare(pod)
            process = _spawn(start)
        except (LocalError, OSError) as error:
            self._terminated(pod, End(_NOT_STARTED, 0, str(error), START_ERROR))
            return
        self._running[mark_of(pod)] = process
        self._started(pod, start.output)
        self._update(pod, self._status("Running", {"running": {"startedAt": format_time(self._now())}}, ready=True))
        watch = asyncio.get_running_loop().create_task(self._watch(pod, process, start.termination_log))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    def stop(self, pod: Json, grace_seconds: int) -> None:
        """SIGTERM to the pod's first process, and SIGKILL to all of them when the grace period has passed."""
        mark, metadata = mark_of(pod), pod["metadata"]
        process = self._running.get(mark)
        if process is None:
            self._objects.remove(PODS, metadata["namespace"], metadata["name"])
            return
        if grace_seconds <= 0:
            kill_marked(mark)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        asyncio.get_running_loop().call_later(grace_seconds, self._overdue, mark)

    async def terminate(self, grace_seconds: int) -> None:
        """SIGTERM to every running pod, and wait for their end for at most so many seconds."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        if self._watches:
            await asyncio.wait(self._watches, timeout=grace_seconds)

    def kill(self) -> None:
        """SIGKILL to every running pod."""
        for mark in list(self._running):
            kill_marked(mark)

    def _overdue(self, mark: str) -> None:
        if mark in self._running:
            kill_marked(mark)

    async def _watch(self, pod: Json, process: subprocess.Popen[bytes], termination_log: Path) -> None:
        code = await self._exit_code(process)
        mark = mark_of(pod)
        # A container ends with its first process, whatever else still runs in it.
        await asyncio.to_thread(end_marked, mark)
        del self._running[mark]
        message = _tail_of(termination_log)
        end = End(128 - code, -code, message) if code < 0 else End(code, 0, message)
        self._terminated(pod, end)

    async def _exit_code(self, process: subprocess.Popen[bytes]) -> int:
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            # The system call does not exist here.
            return await asyncio.get_running_loop().run_in_executor(self._waiters, process.wait)
        try:
            await _readable(descriptor)
        finally:
            os.close(descriptor)
        return process.wait()

    def _terminated(self, pod: Json, end: End) -> None:
        metadata = pod["metadata"]
        state = {
            "exitCode": end.exit_code,
            "reason": end.reason or ("Completed" if end.exit_code == 0 else "Error"),
            "message": end.message,
            "finishedAt": format_time(self._now()),
            **({"signal": end.signal} if end.signal else {}),
        }
        status = self._status("Succeeded" if end.exit_code == 0 else "Failed", {"terminated": state}, ready=False)
        updated = self._update(pod, status)
        if updated is not None and updated["metadata"].get("deletionTimestamp") is not None:
            self._objects.remove(PODS, metadata["namespace"], metadata["name"])

    def _status(self, phase: str, state: Json, *, ready: bool) -> Json:
        condition = {"status": "True" if ready else "False"}
        return {
            "phase": phase,
            "podIP": LOOPBACK,
            "startTime": format_time(self._now()),
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", **condition},
                {"type": "ContainersReady", **condition},
            ],
            "containerStatuses": [{"name": TRAINER_CONTAINER, "ready": ready, "state": state}],
        }

    def _update(self, pod: Json, status: Json) -> Json | None:
        metadata = pod["metadata"]

        def change(raw: Json) -> None:
            raw["status"] = status
            raw["spec"]["nodeName"] = "localhost"

        try:
            return self._objects.change(PODS, metadata["namespace"], metadata["name"], change)
        except NotFound:
            return None


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _tail_of(file: Path) -> str:
    try:
        return file.read_bytes()[-_LONGEST_MESSAGE:].decode("utf-8", "replace")
    except OSError:
        return ""


def _spawn(start: Start) -> subprocess.Popen[bytes]:
    start.termination_log.write_bytes(b"")
    with start.output.open("ab") as output:
        return subprocess.Popen(
            start.process.arguments,
            cwd=start.process.folder,
            env=dict(start.process.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A Ctrl-C in the terminal is for the runner, which asks the programs to save and stop.
            start_new_session=True,
            # Called between fork and exec: it only makes one system call, through a library loaded before.
            preexec_fn=_end_with_us if _LIBC is not None else None,  # noqa: PLW1509
        )


def _end_with_us() -> None:
    # A training must not run on unseen after its runner was killed: it is asked to save and stop.
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def kill_marked(*marks: str) -> list[psutil.Process]:
    """SIGKILL to every process of these pods, or (`<uid>/`) jobs, including those whose parents have ended."""
    found = marked_processes(*marks)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return found


def end_marked(*marks: str) -> None:
    """Kill them and wait for their end: until then they hold their ports."""
    psutil.wait_procs(kill_marked(*marks), timeout=_LONGEST_END)


def marked_processes(*marks: str) -> list[psutil.Process]:
    """This user's processes whose mark begins with one of these."""
    found = ((process, _environment(process).get(POD_VARIABLE, "")) for process in psutil.process_iter())
    return [process for process, marked in found if marked.startswith(marks)]


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        found: Mapping[str, str] = process.environ()
    except (psutil.Error, OSError, SystemError):
        # Another user's, or one that has ended or cannot be read.
        return {}
    return found
