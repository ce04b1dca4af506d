"""Following a job over an API server that comes and goes: the order of its answers is scripted, all else is real."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_answers import given, raw

from ddpjob.cluster.client import Cluster, WatchEvent
from ddpjob.cluster.jobs import follow, job_of, until
from ddpjob_core.api.errors import Expired, NotFound, Unavailable

Answer = Any


class Answers(Cluster):
    """Answers each read, and each watch, with the next thing of its list; an error is raised."""

    def __init__(self, reads: list[Answer], watches: list[list[Answer]]) -> None:
        self.namespace = "ns"
        self._reads, self._watches = iter(reads), iter(watches)
        self.since: list[str] = []
        self.seconds: list[float] = []

    def get(self, *_: object) -> dict[str, Any]:
        return dict(given(next(self._reads)))

    def watch(self, *_: object, since: str, seconds: float, **__: object) -> Iterator[WatchEvent]:
        self.since.append(since)
        self.seconds.append(seconds)
        for answer in next(self._watches):
            yield WatchEvent(*given(answer))


def steps(answers: Answers, count: int, pause: Callable[[float], object] = lambda _: None) -> list[int | None]:
    seen = []
    for job in follow(answers, job_of(raw(0)), pause=pause):
        seen.append(job.status.progress.step if job.status.progress is not None else None)
        if len(seen) == count:
            break
    return seen


DOWN = Unavailable("no answer")


def test_each_change_is_seen_and_the_job_read_again_when_a_watch_ends() -> None:
    answers = Answers([raw(1), raw(4)], [[("MODIFIED", raw(2)), ("MODIFIED", raw(3))], []])
    assert steps(answers, 4) == [1, 2, 3, 4]
    assert answers.since == ["1"]


def test_an_expired_watch_starts_again_with_the_current_job() -> None:
    assert steps(Answers([raw(1), raw(5)], [[Expired("too old")], []]), 2) == [1, 5]


def test_an_api_server_that_is_away_for_a_while_is_waited_for_longer_and_longer() -> None:
    pauses: list[float] = []
    answers = Answers([raw(1), DOWN, DOWN, DOWN, raw(2)], [[DOWN], []])
    assert steps(answers, 2, pauses.append) == [1, 2]
    assert pauses == [1, 2, 4, 8]


def test_following_does_not_give_up_if_a_watch_is_always_cut() -> None:
    answers = Answers([raw(step) for step in range(20)], [[DOWN] for _ in range(20)])
    assert steps(answers, 20) == list(range(20))


def test_an_api_server_that_stays_away_ends_it() -> None:
    with pytest.raises(Unavailable):
        steps(Answers([DOWN] * 9, []), 1)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (Answers([raw(1)], [[("DELETED", raw(1))]]), "was deleted"),
        (Answers([raw(1), raw(1, uid="other")], [[]]), "was deleted and created again"),
        (Answers([NotFound("ddpjobs not found")], []), "there is no DDPJob digits in namespace ns"),
    ],
)
def test_a_job_that_is_gone_ends_it(answers: Answers, text: str) -> None:
    with pytest.raises(NotFound, match=text):
        steps(answers, 9)


def test_patience_bounds_each_watch() -> None:
    answers = Answers([raw(1), raw(2)], [[], []])
    following = follow(answers, job_of(raw(0)), patience=lambda: 2.5)
    assert [next(following).record.resource_version for _ in range(2)] == ["1", "2"]
    assert answers.seconds == [2.5]


def test_a_condition_is_waited_for() -> None:
    answers = Answers([raw(1)], [[("MODIFIED", raw(2)), ("MODIFIED", raw(3))]])
    assert until(answers, job_of(raw(0)), lambda job: job.record.resource_version == "3").record.resource_version == "3"
