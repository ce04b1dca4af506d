"""What an operator says of the namespaces that it serves."""

import asyncio
from dataclasses import dataclass, field

import pytest

from ddpjob_operator.watches import Watched, Watches

LIMIT = 90.0
FORBIDDEN = "pods is forbidden"


@dataclass
class Feed:
    silent_for: float = 0.0
    idle_for: float = 0.0
    refused: str | None = None
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def list(self) -> "Feed":
        self.synced.set()
        return self


def watches(*namespaces: str | None) -> tuple[Watches, dict[str, Feed]]:
    """With all of them listed."""
    feeds = {f"{resource}/{each}": Feed().list() for each in namespaces for resource in ("ddpjobs", "pods")}
    served = {
        each: [Watched(kind, each, feeds[f"{kind}/{each}"]) for kind in ("ddpjobs", "pods")] for each in namespaces
    }
    leases = feeds["leases"] = Feed().list()
    return Watches(served, Watched("leases", None, leases), LIMIT), feeds


async def listed(of: Watches) -> None:
    """Let it see what has been listed."""
    following = asyncio.create_task(of.follow(lambda _: None))
    await asyncio.wait_for(of.useful(), 30)
    for _ in range(3):
        await asyncio.sleep(0)
    following.cancel()


async def test_a_namespace_that_may_not_be_watched_is_a_remark_as_long_as_another_one_may() -> None:
    found, feeds = watches("a", "b")
    await listed(found)
    assert (found.problems(), found.remarks(), found.shown()) == ([], [], {"a": True, "b": True})
    feeds["pods/b"].refused = FORBIDDEN
    feeds["pods/b"].silent_for = LIMIT + 1
    assert found.problems() == []
    assert found.remarks() == [f"namespace b is not served: {FORBIDDEN}"]
    assert found.shown() == {"a": True, "b": False}
    feeds["ddpjobs/a"].refused = "no"
    assert found.problems() == ["the watch of pods in b has been silent for 91 s (limit 90 s)"]


@pytest.mark.parametrize("namespace", [None, "a"])
async def test_the_only_watch_that_is_refused_is_a_problem(namespace: str | None) -> None:
    found, feeds = watches(namespace)
    feeds[f"pods/{namespace}"].synced.clear()
    feeds[f"pods/{namespace}"].refused = FORBIDDEN
    assert found.problems() == [f"pods have not been listed yet: {FORBIDDEN}"]


async def test_a_watch_that_is_silent_or_not_answered_yet_is_a_problem_in_every_namespace() -> None:
    found, feeds = watches("a", "b")
    feeds["ddpjobs/b"].silent_for = feeds["leases"].silent_for = LIMIT + 1
    feeds["pods/a"].synced.clear()
    assert found.problems() == [
        "pods in a have not been listed yet",
        "the watch of ddpjobs in b has been silent for 91 s (limit 90 s)",
        "the watch of leases has been silent for 91 s (limit 90 s)",
    ]


async def test_jobs_are_looked_at_once_all_of_their_namespace_is_listed() -> None:
    found, feeds = watches("a", "b")
    feeds["pods/b"].synced.clear()
    told: list[str | None] = []
    following = asyncio.create_task(found.follow(told.append))
    await asyncio.wait_for(found.useful(), 30)
    assert (told, found.have_listed("a"), found.have_listed("b")) == (["a"], True, False)
    feeds["pods/b"].list()
    for _ in range(9):
        await asyncio.sleep(0)
    assert found.have_listed("b")
    assert told == ["a", "b"]
    assert not following.done(), "its end would be that of the process"
    following.cancel()


async def test_all_namespaces_at_once_have_no_remarks_and_no_series() -> None:
    found, feeds = watches(None)
    await listed(found)
    feeds["pods/None"].refused = FORBIDDEN
    assert found.have_listed("anything")
    assert (found.remarks(), found.shown()) == ([], {})


async def test_the_age_of_a_resource_is_that_of_its_oldest_watch_among_those_that_are_shown() -> None:
    found, feeds = watches("a", "b", "c")
    feeds["pods/a"].silent_for, feeds["pods/b"].silent_for = 7.0, 50.0
    assert found.age("pods") == 50.0
    feeds["pods/b"].refused = FORBIDDEN
    assert found.age("pods") == 7.0
    for each in "ac":
        feeds[f"pods/{each}"].refused = FORBIDDEN
    assert found.age("pods") == 50.0


async def test_a_watch_that_no_longer_tries_is_dead_wherever_it_is() -> None:
    found, feeds = watches("a", "b")
    assert [check() for check in found.alive if check()] == []
    feeds["pods/b"].idle_for = LIMIT + 1
    assert [check() for check in found.alive if check()] == [
        "the watch of pods in b has done nothing for 91 s (limit 90 s)"
    ]
