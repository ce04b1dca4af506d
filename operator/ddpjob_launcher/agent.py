"""The agent of a node: what all launchers have in common. The first end that it learns of is the one it reports."""

# ruff: noqa: ANN401 -- torch's objects, of whatever version the image has

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from .cgroup import oom_kills
from .failures import own_failure, worker_failure
from .groups import small_group
from .log import say
from .program import check_program
from .report import Failure, encode_report, write_report
from .signals import AGREED_STOP, STOP_SIGNALS, container_code, signal_name
from .torch_import import apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .settings import Settings


class Agent:
    """Launches the workers of a node, each launcher by its own `_launch`, and reports their end."""

    def __init__(self, settings: Settings, folder: str) -> None:
        """Make an agent that keeps its files in `folder`."""
        self._settings = settings
        self._folder = folder
        # The workers of the current round: their pids and error files by local rank.
        self._context: Any = None
        self._rounds = self._oom_kills = 0
        self._code: int | None = None
        self._stopping = False
        self._lock = threading.RLock()
        self._patience = max(1.0, settings.grace_period - 2)

    def run(self) -> int:
        """Launch, and return the exit code of the container."""
        self._listen()
        try:
            check_program(self._settings.program_kind, self._settings.program)
            self._launch()
            self._end(0)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the report has to name it
            self._park_if_stopping()
            self._report_error(error)
        return self._code or 0

    def _launch(self) -> None:
        """Start the workers and wait for their end."""
        raise NotImplementedError

    def _report_error(self, error: BaseException) -> None:
        """Report what ended the launch, unless all ranks of this node have left on purpose."""
        if self._agreed():
            # Node 0 was faster, and took the store with it.
            self._end_agreed()
        else:
            self._end(1, [own_failure(error, self._settings)])

    def _agreed(self) -> bool:
        """Whether all ranks of this node have left on purpose."""
        return False

    def _ends(self, ends: dict[int, Any]) -> tuple[int, list[Failure]]:
        """The container's exit code, and what the report says of the workers that failed, the likely cause first."""
        files, out_of_memory = self._context.error_files, oom_kills() > self._oom_kills
        failures = [
            worker_failure(rank, end, files[end.local_rank], out_of_memory=out_of_memory) for rank, end in ends.items()
        ]
        # A rank that was killed is more likely the cause than one that lost the connection to it and reported first.
        failures.sort(key=lambda each: (each.exit_code == AGREED_STOP, each.signal is None, each.time, each.rank))
        return container_code(ends[failures[0].rank or 0].exitcode), failures

    def _end_agreed(self, late: str = "") -> None:
        self._end(AGREED_STOP, message=f"the ranks agreed to stop{late}", stopped=True)

    def _end(
        self,
        code: int,
        failures: list[Failure] | None = None,
        message: str = "",
        *,
        stopped: bool = False,
        stopped_by: str | None = None,
    ) -> None:
        with self._lock:
            if self._code is not None:
                return
            self._code = code
            progress = self._progress()
            group = () if code else self._small_group()
            report = encode_report(
                code,
                failures or [],
                message,
                progress,
                restarts=self._restarts,
                stopped=stopped,
                stopped_by=stopped_by,
                generation=self._generation(),
                group=group,
            )
            write_report(report)
        if group:
            say(f"WARNING: {apart(*group)}")
        for failure in failures or []:
            who = f"rank {failure.rank}: " if failure.rank is not None else ""
            say(f"{who}{failure.message}")
            if failure.signal and failure.traceback:
                say(failure.traceback)

    @property
    def _restarts(self) -> int:
        """How often processes were started again in this pod."""
        return max(0, self._rounds - 1)

    def _generation(self) -> int | None:
        """Which membership of an elastic job this node trained in."""
        return None

    def _small_group(self) -> tuple[int, ...]:
        files = self._context.error_files if self._context else {}
        return small_group(files.values(), self._settings)

    def _progress(self) -> dict[str, Any] | None:
        try:
            with open(os.environ.get("DDPJOB_PROGRESS_FILE", "")) as file:  # noqa: PTH123 -- a path of the environment
                progress = json.load(file)
        except (OSError, ValueError):
            return None
        return progress if isinstance(progress, dict) else None

    # Stopping. A thread does it: the main one may be in a call into torch that no Python signal handler interrupts.

    def _listen(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        self._handle_signals()
        threading.Thread(target=self._await_stop, args=(reader,), daemon=True).start()

    def _handle_signals(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

    def _await_stop(self, reader: int) -> None:
        number = 0
        while number not in STOP_SIGNALS:
            number = os.read(reader, 1)[0]
        with self._lock:
            self._stopping = True
        say(f"{signal_name(number)}: stopping the workers, which have at most {self._patience:g} s")
        late = self._wait_for_workers(self._context, number)
        name = signal_name(number)
        self._end(128 + number, message=f"stopped by {name}{late}", stopped=True, stopped_by=name)
        leave(self._code or 0)

    def _wait_for_workers(self, context: Any, number: int = 0) -> str:
        """Wait for the workers to end, signalling each if asked to, and kill those that are late; return how many."""
        workers = list(context.pids().values()) if context else []
        alive = [pid for pid in workers if self._is_alive(pid)]
        for pid in alive:
            # The program alone, not its process group: data loaders are needed to finish the step and save.
            # It may end, and be reaped, at any moment: the others must get their signal all the same.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        late = still_running(alive, self._patience, self._is_alive)
        for pid in late:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        still_running(late, 0.5, self._is_alive)
        return f"; {len(late)} of {len(workers)} workers did not exit within {self._patience:g} s" if late else ""

    def _is_alive(self, pid: int) -> bool:
        # Looks without reaping: the exit status is torch's to read.
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def _park_if_stopping(self) -> None:
        while self._stopping:
            time.sleep(60)


def leave(code: int) -> NoReturn:
    """End immediately: torch's own teardown could still hang or change the exit code."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def still_running(pids: list[int], patience: float, runs: Callable[[int], bool]) -> list[int]:
    """Those of the processes that have not ended within so many seconds."""
    deadline = time.monotonic() + patience
    alive = [pid for pid in pids if runs(pid)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [pid for pid in alive if runs(pid)]
    return alive
