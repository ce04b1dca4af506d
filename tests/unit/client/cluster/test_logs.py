"""Which logs are read, and how their lines are labelled."""

from dataclasses import replace

import pytest
from api_answers import pod, raw

from ddpjob.cluster.jobs import job_of
from ddpjob.cluster.logs import LogLine, Source, choose_sources, labelled, stacks_of
from ddpjob.views.job import Job
from ddpjob_core.api.errors import (
    NotFound,
)
from ddpjob_core.observations.observed import PodRecord

PODS = [replace(pod(ordinal), attempt=attempt) for attempt in (1, 3) for ordinal in (0, 1)]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, [(3, 0, "0-1"), (3, 1, "2-3")]),
        ({"current": 4}, [(3, 0, "0-1"), (3, 1, "2-3")]),
        ({"attempt": 1}, [(1, 0, "0-1"), (1, 1, "2-3")]),
        ({"rank": 3}, [(3, 1, "2-3")]),
        ({"rank": 1, "processes": 1}, [(3, 1, "1")]),
    ],
)
def test_logs_are_those_of_the_newest_attempt_that_has_pods_unless_asked_otherwise(
    asked: dict[str, int], chosen: list[tuple[int, int, str]]
) -> None:
    sources = choose_sources("digits", PODS, **{"current": 3, "processes": 2, **asked})
    assert [(source.attempt, source.ordinal, source.ranks) for source in sources] == chosen


@pytest.mark.parametrize(
    ("pods", "asked", "text"),
    [
        ([], {}, "digits has no pods"),
        (PODS, {"attempt": 2}, "no longer has pods of attempt 2"),
        (PODS, {"rank": 9}, "no pod with rank 9"),
    ],
)
def test_a_missing_log_is_reported_with_what_exists(pods: list[PodRecord], asked: dict[str, int], text: str) -> None:
    with pytest.raises(NotFound, match=text) as missing:
        choose_sources("digits", pods, **{"current": 3, "processes": 2, **asked})
    assert missing.value.remedy


def test_lines_of_several_pods_carry_pod_and_ranks() -> None:
    source = Source("digits-a0-1", 0, 1, "2-3")
    line = source.line("2026-01-01T00:00:00.1Z loss 0.1  ")
    assert line == LogLine("2026-01-01T00:00:00.1Z", "digits-a0-1", 0, 1, "2-3", "loss 0.1  ")
    assert labelled(line, 2) == "[digits-a0-1 ranks 2-3] loss 0.1  "
    assert labelled(line, 1) == "loss 0.1  "


def stalled() -> Job:
    stack = {"attempt": 0, "rank": 3, "ordinal": 1, "step": 10, "text": 'File "train.py", line 9\n  while True:\n'}
    waits = {**stack, "rank": 0, "ordinal": 0, "text": "work.wait()"}
    status = {"attempt": 1, "podsCreated": True, "nodes": {"desired": 2}, "stacks": [stack, waits]}
    return job_of({**raw(1), "status": status})


def test_the_stacks_of_a_stall_are_read_where_the_logs_are_gone() -> None:
    lines = [(line.pod, line.ranks, line.text) for line in stacks_of(stalled(), attempt=0, rank=3)]
    assert lines == [("digits-a0-1", "3", 'File "train.py", line 9'), ("digits-a0-1", "3", "  while True:")]
    assert [line.ranks for line in stacks_of(stalled(), attempt=0)] == ["3", "3", "0"]
    assert stacks_of(stalled()) == []
    assert stacks_of(stalled(), attempt=0, rank=1) == []
