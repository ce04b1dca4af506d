"""The last lines of a job's log, long after its end; the order of events is scripted, all else is real."""

import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from api_answers import raw
from rich.console import Console

from ddpjob.cli.following import Tail
from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import job_of
from ddpjob_core.api.errors import Forbidden

JOB = raw(1)
JOB["status"] = {**JOB.get("status", {}), "phase": "Running", "attempt": 0, "podsCreated": True}
ENDED = {"name": "trainer", "state": {"terminated": {"exitCode": 0}}}


class Node(Cluster):
    """Writes the next line each time one is asked for, as slowly as the test likes."""

    def __init__(self, lines: int, *, ends: bool = True, refuses: bool = False) -> None:
        self.namespace = "ns"
        self.wanted = threading.Semaphore(0)
        self._lines = lines
        self._ends = ends
        self._refuses = refuses

    def log(self, *_: object, follow: bool = False, **__: object) -> Iterator[str]:
        if self._refuses:
            raise Forbidden("you may not")
        for number in range(self._lines if follow else 0):
            self.wanted.acquire()
            yield f"2026-01-01T00:00:00.{number:09d}Z line {number}"
        if not self._ends:
            self.wanted.acquire()

    def find(self, *_: object, **__: object) -> list[dict[str, Any]]:
        metadata = {"namespace": "ns", "name": "digits-a0-0", "uid": "p", "resourceVersion": "1"}
        return [{"metadata": metadata, "status": {"phase": "Running", "containerStatuses": [ENDED]}}]

    def get(self, *_: object) -> dict[str, Any]:
        return JOB


class Patience(threading.Event):
    """Has a line come each time that its user waits, as if that had taken long; then the end, or nothing."""

    def __init__(self, node: Node, lines: int, *, ends: bool) -> None:
        super().__init__()
        self._node = node
        self._left = lines
        self._ends = ends

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "it must not wait for ever"
        if self._left:
            self._left -= 1
            self._node.wanted.release()
            return super().wait()
        return super().wait() if self._ends else False


def shown(node: Node, lines: int, *, ends: bool = True) -> str:
    out = io.StringIO()
    tail = Tail(node, Console(stderr=True), Console(file=out, width=100), Patience(node, lines, ends=ends))
    job = job_of(JOB)
    tail.see(job)
    tail.finish(job)
    return out.getvalue()


def test_no_line_is_lost_however_long_after_the_end_of_the_job_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Node(200), 200).splitlines() == [f"line {number}" for number in range(200)]
    assert "missing" not in capsys.readouterr().err


def test_a_log_that_falls_silent_and_does_not_end_is_cut_in_so_many_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Node(3, ends=False), 3, ends=False).splitlines() == ["line 0", "line 1", "line 2"]
    said = capsys.readouterr().err
    assert "nothing more of the log of digits-a0-0 has come for 30 s" in said
    assert "ddpjob logs digits -n ns --attempt 0 --rank 0" in " ".join(said.split())


def test_a_log_that_may_not_be_read_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert not shown(Node(1, refuses=True), 0)
    said = capsys.readouterr().err
    assert "cannot read the log of digits-a0-0: you may not" in said
    assert "missing" not in said
