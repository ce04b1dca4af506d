"""What a message names, and what it only counts."""

import pytest

from ddpjob_core.observations.listing import first_few, grouped_by_message


def test_what_is_not_named_is_counted() -> None:
    assert first_few(["a", "b", "c", "d"], 2) == ["a", "b", "and 2 more"]


def test_nothing_is_counted_where_all_is_named() -> None:
    assert first_few(["a", "b"], 2) == ["a", "b"]
    assert first_few([], 2) == []


NO_ROOM = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ([], ""),
        ([("a-0", NO_ROOM)], f"a-0: {NO_ROOM}"),
        ([("a-0", NO_ROOM), ("a-1", NO_ROOM)], f"pods a-0, a-1 (2): {NO_ROOM}"),
        (
            [("a-0", NO_ROOM), ("a-1", "starting"), ("a-2", NO_ROOM)],
            f"pods a-0, a-2 (2): {NO_ROOM}; a-1: starting",
        ),
        ([(f"a-{k}", NO_ROOM) for k in range(5)], f"pods a-0, a-1, ... (5): {NO_ROOM}"),
        ([("a-0", "x"), ("a-1", "y"), ("a-2", "z"), ("a-3", "z"), ("a-4", "w")], "a-0: x; a-1: y; and 3 more"),
    ],
)
def test_what_is_the_same_of_several_is_said_once(told: list[tuple[str, str]], text: str) -> None:
    assert grouped_by_message(told, 2, "pods") == text


def test_objects_of_different_kinds_are_named_with_their_kinds() -> None:
    told = [("pod a-0", "pods is forbidden"), ("service a", "no"), ("pod a-1", "pods is forbidden")]
    assert grouped_by_message(told, 3) == "pod a-0, pod a-1 (2): pods is forbidden; service a: no"


def test_messages_that_differ_only_by_the_names_in_them_are_shown_once_by_their_cause() -> None:
    said = [("a-0", 'pods "a-0" is forbidden: quota'), ("a-1", 'pods "a-1" is forbidden: quota')]
    assert grouped_by_message(said, 2, "pods") == 'pods a-0, a-1 (2): pods "a-0" is forbidden: quota'


def test_objects_that_are_refused_for_different_causes_are_both_shown() -> None:
    said = [("pod a-0", 'pods "a-0" is forbidden: quota'), ("pod a-1", 'pods "a-1" is forbidden: webhook denied it')]
    assert grouped_by_message(said, 3) == (
        'pod a-0: pods "a-0" is forbidden: quota; pod a-1: pods "a-1" is forbidden: webhook denied it'
    )
