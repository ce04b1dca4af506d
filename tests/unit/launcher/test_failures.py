"""What has failed, in the words of the report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpjob_launcher import cgroup
from ddpjob_launcher.commands import FILE
from ddpjob_launcher.failures import is_own, own_failure, worker_failure
from ddpjob_launcher.report import Failure
from ddpjob_launcher.signals import AGREED_STOP, container_code
from tests.unit.launcher.running import files_of, settings_of


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (7, 7), (125, 125), (126, 1), (255, 1), (-9, 137), (-64, 192)])
def test_the_containers_exit_code_is_the_workers_where_a_shell_has_no_other_meaning(code: int, expected: int) -> None:
    assert container_code(code) == expected


def test_a_failed_rendezvous_says_what_to_look_at_and_names_the_cause() -> None:
    late = type("RendezvousTimeoutError", (Exception,), {})()
    assert "Check the job's pods: kubectl -n ml get pods -l ddpjob.dev/job=digits" in (
        own_failure(late, settings_of()).message
    )
    here = own_failure(late, settings_of(DDPJOB_LOCAL="1"))
    assert here.message == "RendezvousTimeoutError: not all nodes joined in time. Check their output"
    lost = type("RendezvousConnectionError", (Exception,), {})("store failed")
    lost.__cause__ = RuntimeError("Broken pipe\nframe #0")
    assert own_failure(lost).message == "RendezvousConnectionError: store failed (RuntimeError: Broken pipe)"
    assert not own_failure(lost).traceback
    assert own_failure(KeyError("x")).traceback


LOADER = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "
OUT_OF_MEMORY = "killed by the kernel: out of memory (limit 512 MiB)"


@pytest.mark.parametrize(
    ("exit_code", "said", "grown", "message"),
    [
        (-9, "", True, OUT_OF_MEMORY),
        (-9, "", False, "killed by SIGKILL"),
        (-11, "", True, "killed by SIGSEGV"),
        (1, LOADER, True, f"{LOADER.rstrip('. ')} ({OUT_OF_MEMORY})"),
        (1, LOADER, False, LOADER),
        (1, "ValueError: bad", True, "ValueError: bad"),
    ],
)
def test_a_worker_that_ran_out_of_memory_is_distinguished_from_one_that_was_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, said: str, message: str, *, grown: bool
) -> None:
    files_of(monkeypatch, cgroup, {"/sys/fs/cgroup/memory.max": str(512 << 20)})
    error_file = folder / "error.json"
    if said:
        error_file.touch()
    recorded = {"message": {"message": said, "extraInfo": {"time": 5.0}}} if said else {}
    end = SimpleNamespace(
        local_rank=1, exitcode=exit_code, error_file=str(error_file), error_file_data=recorded, timestamp=5
    )
    entry = worker_failure(3, end, str(error_file), out_of_memory=grown)
    assert entry.message == message
    assert entry.oom == ("out of memory" in message)


def test_the_stack_of_a_crash_ends_with_the_programs_own_calls(folder: Path) -> None:
    own = 'Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n  File "train.py", line 3 in deep'
    ours = f'\n  File "{FILE}/ddp-job/worker.py", line 76 in _execute\n\nExtension modules: torch._C (total: 1)\n'
    (folder / "fault.txt").write_text(own + ours)
    end = SimpleNamespace(local_rank=1, exitcode=-11, error_file=str(folder / "error.json"), error_file_data={})
    failure = worker_failure(3, end, end.error_file)
    assert failure.message == "Fatal Python error: Segmentation fault"
    assert failure.traceback == f"{own}\n"


def failure(message: str = "", **fields: Any) -> Failure:
    return Failure(message, 0.0, **fields)


@pytest.mark.parametrize(
    ("found", "own"),
    [
        ([failure(signal="SIGKILL")], True),
        ([failure(signal="SIGSEGV")], True),
        ([failure(oom=True, exit_code=1)], True),
        ([failure(permanent=True, exit_code=2)], True),
        ([failure(error_type="ValueError", exit_code=1)], True),
        ([failure(error_type="RuntimeError", exit_code=1), failure(signal="SIGKILL")], True),
        # A collective that times out aborts the process.
        ([failure(signal="SIGABRT")], False),
        ([failure(signal="SIGTERM")], False),
        ([failure(error_type="RuntimeError", exit_code=1)], False),
        ([failure(error_type="DistBackendError", exit_code=1)], False),
        ([failure(error_type="ConnectionResetError", exit_code=1)], False),
        # Without a record nothing is known.
        ([failure(exit_code=1)], False),
        # Ranks that agree to stop may have been asked to by another node; what does not end in time is killed.
        ([failure(exit_code=AGREED_STOP), failure(signal="SIGKILL")], False),
        ([], False),
    ],
)
def test_a_failure_is_a_nodes_own_where_the_end_of_another_cannot_have_caused_it(
    found: list[Failure], *, own: bool
) -> None:
    assert is_own(found) == own
