"""One who asks for much does not keep those waiting who ask for little."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.engine.fair import FairQueue


def test_namespaces_take_turns_and_in_them_jobs() -> None:
    queue = FairQueue[str]()
    for number in range(3):
        queue.add(f"a/big/{number}", "a", "big")
    queue.add("a/small/0", "a", "small")
    queue.add("b/one/0", "b", "one")
    assert [queue.take() for _ in range(5)] == ["a/big/0", "b/one/0", "a/small/0", "a/big/1", "a/big/2"]
    with pytest.raises(IndexError):
        queue.take()


def test_an_item_that_waits_keeps_its_place_and_one_that_left_is_not_served() -> None:
    queue = FairQueue[int]()
    assert [queue.add(item, "a") for item in (1, 2, 1, 3)] == [True, True, False, True]
    assert queue.discard(2, "a")
    assert not queue.discard(2, "a")
    assert not queue.discard(1, "b")
    assert len(queue) == 2
    assert [queue.take(), queue.take()] == [1, 3]
    assert not queue


moves = st.lists(st.tuples(st.sampled_from(["add", "take", "discard"]), st.integers(0, 3), st.integers(0, 30)))


@given(moves)
def test_nothing_is_lost_and_nobody_is_passed_over_twice(moves: list[tuple[str, int, int]]) -> None:
    queue, waiting, passed = FairQueue[tuple[int, int]](), dict[int, deque[int]](), dict[int, int]()
    for move, group, number in moves:
        mine, item = waiting.setdefault(group, deque()), (group, number)
        if move == "add":
            if queue.add(item, group):
                mine.append(number)
        elif move == "discard":
            if queue.discard(item, group):
                mine.remove(number)
        elif any(waiting.values()):
            served, taken = queue.take()
            assert waiting[served].popleft() == taken
            for name, items in waiting.items():
                passed[name] = passed.get(name, 0) + 1 if items and name != served else 0
            # Each of the other groups is served once before it is this one's turn again.
            assert max(passed.values()) <= len(waiting)
        assert len(queue) == sum(map(len, waiting.values()))
