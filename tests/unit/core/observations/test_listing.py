"""What a message names, and what it only counts."""

from ddpjob_core.observations.listing import first_few


def test_what_is_not_named_is_counted() -> None:
    assert first_few(["a", "b", "c", "d"], 2) == ["a", "b", "and 2 more"]


def test_nothing_is_counted_where_all_is_named() -> None:
    assert first_few(["a", "b"], 2) == ["a", "b"]
    assert first_few([], 2) == []
