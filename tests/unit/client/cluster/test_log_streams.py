"""Logs followed over streams that end early or are cut: the order of the answers is scripted, all else is real."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from api_answers import given, raw

from ddpjob.cluster import log_streams
from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import job_of
from ddpjob.cluster.log_streams import follow_logs, stream
from ddpjob.cluster.logs import Source
from ddpjob_core.api.errors import ApiError, Forbidden, Invalid, NotFound, Unavailable

SOURCE = Source("digits-a0-0", 0, 0, "0")
JOB = job_of(raw(1))
DOWN = Unavailable("no answer")
STARTING = Invalid('container "trainer" in pod "digits-a0-0" is waiting to start: ContainerCreating')
UNKNOWN = NotFound("the server could not find the requested resource")
# As the kubelet writes them: with nine digits, whatever they are.
FIRST, SECOND, THIRD = (f"2026-01-01T00:00:0{second}.000000000Z" for second in (1, 2, 3))


def pod(**status: Any) -> list[dict[str, Any]]:
    metadata = {"namespace": "ns", "name": "digits-a0-0", "uid": "p", "resourceVersion": "1"}
    return [{"metadata": metadata, "status": {"phase": "Pending", **status}}]


ended = {"name": "trainer", "state": {"terminated": {"exitCode": 0}}}
WAITS, RUNS, ENDED = pod(), pod(phase="Running"), pod(phase="Running", containerStatuses=[ended])
OVER = raw(9)
OVER["status"]["conditions"] = [
    {"type": "Succeeded", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
]


class Node(Cluster):
    """Answers each read of the log with the next list of lines, in which an error cuts the stream, and then with the
    state of the pod."""

    def __init__(self, *answers: tuple[Any, Any], job: Any = JOB) -> None:
        self.namespace = "ns"
        self._answers = iter(answers)
        self._pod: Any = None
        self._job = job
        self.asked: list[tuple[bool, int | None, str | None]] = []

    def log(
        self, namespace: str, pod: str, *, follow: bool = False, tail: int | None = None, since: str | None = None
    ) -> Iterator[str]:
        assert (namespace, pod) == ("ns", "digits-a0-0")
        self.asked.append((follow, tail, since))
        lines, self._pod = next(self._answers)
        for line in lines if isinstance(lines, list) else [lines]:
            yield given(line)

    def find(self, *_: object, **__: object) -> list[dict[str, Any]]:
        return list(given(self._pod))

    def get(self, *_: object) -> dict[str, Any]:
        return dict(given(self._job)) if isinstance(self._job, dict | Exception) else raw(1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "_LOOK_AGAIN_SECONDS", 0.0)


def read(node: Node, tail: int | None = None) -> list[str]:
    return [line.text for line in stream(node, JOB, SOURCE, threading.Event(), tail=tail)]


A, B, C = f"{FIRST} a", f"{SECOND} b", f"{THIRD} c"


@pytest.mark.parametrize(
    "before",
    [
        ([], WAITS),
        (UNKNOWN, WAITS),
        (STARTING, WAITS),
        (DOWN, RUNS),
    ],
)
def test_a_pod_without_a_node_or_a_started_container_is_waited_for(before: tuple[Any, Any]) -> None:
    node = Node(before, before, ([A, B], ENDED), ([], ENDED))
    assert read(node) == ["a", "b"]


def test_each_line_comes_once_although_the_stream_is_cut_and_the_server_counts_in_seconds() -> None:
    same = f"{SECOND} twice"
    node = Node(
        ([A, same, DOWN], RUNS),
        ([same, same, B, C], RUNS),  # closed in peace, as by a server that shuts down
        ([C, f"{THIRD} last"], ENDED),
        ([C, f"{THIRD} last", f"{THIRD} and more"], ENDED),
    )
    assert read(node, tail=5) == ["a", "twice", "twice", "b", "c", "last", "and more"]
    assert node.asked == [(True, 5, None), (True, None, SECOND), (True, None, THIRD), (False, None, THIRD)]


def test_a_pod_that_is_gone_and_an_attempt_that_is_over_end_it() -> None:
    assert read(Node(([A], []), (UNKNOWN, []))) == ["a"]
    assert read(Node(([], WAITS), ([], WAITS), job=OVER)) == []
    assert read(Node(([], WAITS), ([], WAITS), job=NotFound("there is no DDPJob digits"))) == []


def test_what_the_kubelet_says_hides_no_line_and_is_said_once() -> None:
    said = "unable to retrieve container logs for containerd://1"
    assert read(Node(([said], RUNS), ([said, A], ENDED), ([A, B], ENDED))) == [said, "a", "b"]


@pytest.mark.parametrize("answer", [(Forbidden("you may not"), RUNS), *[(DOWN, DOWN)], *[(DOWN, ENDED)]])
def test_what_does_not_answer_for_long_or_may_not_be_read_is_an_error(answer: tuple[Any, Any]) -> None:
    with pytest.raises(ApiError):
        read(Node(*[answer] * 20))


def test_a_node_that_does_not_answer_is_waited_for_as_long_as_its_pod_lives() -> None:
    assert read(Node(*[(DOWN, RUNS)] * 50, ([A], ENDED), ([], ENDED))) == ["a"]


def test_an_error_of_one_node_does_not_end_the_others_and_one_of_all_is_raised() -> None:
    missed: list[str] = []
    refused = Node((Forbidden("you may not"), RUNS))
    with pytest.raises(Forbidden):
        list(follow_logs(refused, JOB, [SOURCE], missed=lambda source, error: missed.append(f"{source.pod}: {error}")))
    assert missed == ["digits-a0-0: you may not"]
