"""The guard: the container's first process, which outlives the agent, its child."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import tempfile
import time
from importlib import import_module
from typing import TYPE_CHECKING

from .agent import leave
from .cgroup import oom_kills
from .errors import CannotStart, LaunchError
from .failures import killed_program, own_failure
from .home import give_home
from .log import say
from .report import encode_report, is_reported, write_report
from .settings import read_settings
from .signals import AGAIN, STOP_SIGNALS, signal_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from .settings import Settings

_WATCHED: set[int] = {*STOP_SIGNALS, signal.SIGCHLD}


def launch() -> int:
    """Launch the program that the environment names; return the container's exit code."""
    try:
        settings, folder = read_settings(os.environ), private_folder()
        give_home(os.environ, folder)
    except LaunchError as error:
        return _report_own(error)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us even if we are not PID 1
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        run = run_agents if settings.membership_file else run_agent
        return _guarded(run, settings, folder, mask, settings.grace_period)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _guarded(
    run: Callable[[Settings, str], int], settings: Settings, folder: str, mask: set[int], grace_period: float
) -> int:
    """Run in a child with this signal mask, and guard it."""
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        leave(run(settings, folder))
    return guard(child, _WATCHED, grace_period)


def run_agents(settings: Settings, folder: str) -> int:
    """Run one agent after another, each of which finds torch loaded: loading it is what each start would begin with."""
    # What is wrong with it, the agent reports.
    with contextlib.suppress(Exception):
        import_module(f".{settings.module}", __package__).preload()
    mask, code = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED), AGAIN
    while code == AGAIN:
        # It has to be heard of before the first guard loses patience.
        code = _guarded(run_agent, settings, folder, mask, settings.grace_period - 0.5)
    return code


def run_agent(settings: Settings, folder: str) -> int:
    """Run the launcher that the settings name."""
    try:
        agent = import_module(f".{settings.module}", __package__).AGENT(settings, folder)
    except Exception as error:  # noqa: BLE001 -- before the agent runs, nobody else reports what it is
        return _report_own(error)
    code: int = agent.run()
    return code


def _report_own(error: Exception) -> int:
    failure = own_failure(error)
    write_report(encode_report(1, [failure]))
    say(failure.message)
    return 1


def guard(child: int, watched: set[int], grace_period: float) -> int:
    """Be the container's first process until the agent ends; return its exit code, or AGAIN for another agent.

    An agent that is killed (by the kernel for its memory, say) or does not end in time cannot report: then this does.
    """
    stopped, deadline, kills = 0, float("inf"), oom_kills()
    while True:
        event = signal.sigtimedwait(watched, max(0.0, min(deadline - time.monotonic(), 3600.0)))
        if event is not None and event.si_signo != signal.SIGCHLD:
            os.kill(child, event.si_signo)
            if not stopped:
                stopped, deadline = event.si_signo, time.monotonic() + max(1.5, grace_period - 1)
        elif time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        status = _reap(child)
        if status is None:
            continue
        code = None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if code is not None and not (code == AGAIN and stopped):
            return code
        number = stopped or os.WTERMSIG(status)
        if not is_reported():
            killed = killed_program("the launcher", number, kills)
            message = f"stopped by {signal_name(number)}" if stopped else ""
            by = signal_name(number) if stopped else None
            failures = [] if stopped else [killed]
            write_report(encode_report(128 + number, failures, message, stopped=bool(stopped), stopped_by=by))
        return 128 + number


def _reap(child: int) -> int | None:
    """Reap all processes that have ended, orphans too; the child's wait status if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                found = status
            elif pid == 0:
                break
    return found


def private_folder() -> str:
    """A folder of our own, even where the root file system is read-only and nothing is mounted on /tmp."""
    for place in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix="ddpjob-", dir=place or "/nonexistent")
            os.environ["TMPDIR"] = str(place)
            return folder
    raise CannotStart("no writable folder for temporary files: mount an emptyDir at /tmp")
