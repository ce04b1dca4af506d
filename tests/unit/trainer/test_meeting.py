"""Ranks that meet again: all of one generation, or none."""

from collections.abc import Callable

import pytest

from ddpjob_launcher import replacing
from ddpjob_trainer.process import meeting
from ddpjob_trainer.process.meeting import (
    ABANDONED,
    GENERATION,
    Meeting,
    NotMetError,
    Overtaken,
    SubstitutedError,
)


class Store:
    """What a launcher's store does, in one process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str, /) -> None:
        self.values[key] = value

    def get(self, key: str, /) -> str:
        return self.values[key]

    def check(self, keys: list[str], /) -> bool:
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int, /) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])


class Time:
    """Seconds that pass only while a rank waits; `meanwhile` is what happens then."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self._meanwhile = meanwhile

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile()


def _meeting(store: Store, rank: int = 0, time: Time | None = None, world_size: int = 2) -> Meeting:
    time = time or Time()
    return Meeting(store, rank=rank, world_size=world_size, clock=time, pause=time.pause)


def test_the_last_rank_that_comes_need_not_wait_and_ends_the_wait_of_the_others() -> None:
    store = Store()
    others = Time(lambda: store.add("ddpjob/met/1/here", 1))
    _meeting(store, time=others).meet(1, "here", 300)
    assert others.now > 0
    time = Time()
    _meeting(store, 1, time).meet(1, "here", 300)
    assert time.now == 0


def test_a_rank_that_waits_learns_of_a_newer_generation() -> None:
    store = Store()
    store.add(GENERATION, 1)
    with pytest.raises(Overtaken):
        _meeting(store, time=Time(lambda: store.add(GENERATION, 1))).meet(1, "here", 300)


def test_ranks_of_different_generations_and_points_never_meet() -> None:
    store = Store()
    for generation, point in ((1, "here"), (2, "there")):
        with pytest.raises(NotMetError):
            _meeting(store).meet(generation, point, 1)
        store.values[ABANDONED] = "0"


def test_a_rank_that_gives_up_ends_the_wait_of_all_others() -> None:
    store = Store()
    time = Time()
    with pytest.raises(NotMetError, match=r"1 of 2 ranks did not come in time \(here\)"):
        _meeting(store, time=time).meet(1, "here", 60)
    assert time.now >= 60
    other = Time()
    with pytest.raises(NotMetError, match="gave up waiting"):
        _meeting(store, 1, other, world_size=3).meet(1, "here", 300)
    assert other.now == 0


def test_a_rank_that_was_asked_to_stop_waits_no_longer_than_a_new_process_needs_to_start() -> None:
    time = Time()
    waiting = Meeting(Store(), rank=0, world_size=2, hurried=lambda: time.now > 5, clock=time, pause=time.pause)
    with pytest.raises(NotMetError):
        waiting.meet(1, "here", 300)
    assert 10 < time.now < 20


def test_a_rank_whose_place_another_pod_has_is_kept_out() -> None:
    store = Store()
    first, later = (Meeting(store, rank=1, world_size=2, member=member) for member in (0, 4))
    first.keep_out()
    store.set(meeting.holder_key(1), "4")
    later.keep_out()
    with pytest.raises(SubstitutedError, match="another pod has taken the place of rank 1"):
        first.keep_out()
    # Of the other rank nothing is said.
    _meeting(store, 0).keep_out()


def test_ranks_that_have_all_lost_a_connection_have_lost_no_process() -> None:
    store = Store()
    first, second = _meeting(store), _meeting(store, 1)
    first.lose(1)
    assert not first.is_whole(1)
    second.lose(2)
    assert not first.is_whole(1)
    second.lose(1)
    assert first.is_whole(1)


def test_a_rank_that_has_stopped_waits_a_moment_for_the_others_to_say_so_too() -> None:
    store = Store()
    time = Time()
    waiting = _meeting(store, time=time)
    waiting.stop(1)
    waiting.await_stop(1)
    assert 10 <= time.now < 11
    _meeting(store, 1).stop(1)
    later = Time()
    _meeting(store, time=later).await_stop(1)
    assert later.now == 0


@pytest.mark.parametrize(
    ("code", "changes", "expected"),
    [
        (-9, {}, True),
        (-11, {}, True),
        (-6, {}, True),
        # Asked to stop, by a person or by Kubernetes.
        (-15, {}, False),
        (-2, {}, False),
        # By itself: on every rank, or again.
        (1, {}, False),
        (143, {}, False),
        (-9, {"ready": False}, False),
        (-9, {"abandoned": True}, False),
        (-9, {"restarts": 3}, False),
        (-9, {"restarts": 2}, True),
        (-9, {"most": 0}, False),
    ],
)
def test_a_worker_is_replaced_that_was_killed_while_all_ranks_can_go_on(
    code: int, changes: dict[str, int], *, expected: bool
) -> None:
    known = {"ready": True, "abandoned": False, "restarts": 0, "most": 3, **changes}
    assert replacing.may_replace(code, **known) is expected  # type: ignore[arg-type]
