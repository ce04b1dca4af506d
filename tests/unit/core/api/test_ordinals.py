"""Sets of ordinals as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.ordinals import format_ordinals, parse_ordinals


@pytest.mark.parametrize(
    ("ordinals", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((5, 0, 2, 1), "0-2,5"), ((1, 1), "1")],
)
def test_neighbours_are_put_together(ordinals: tuple[int, ...], text: str) -> None:
    assert format_ordinals(ordinals) == text


@given(st.frozensets(st.integers(0, 9_999), max_size=300))
def test_what_is_written_is_read_back(ordinals: frozenset[int]) -> None:
    assert parse_ordinals(format_ordinals(ordinals), 10_000) == ordinals


@pytest.mark.parametrize("text", ["x", "1-", "-", "1,,2", "0-x"])
def test_a_text_that_is_none_holds_no_ordinal_that_it_does_not_name(text: str) -> None:
    assert parse_ordinals(text, 100) <= {0, 1, 2}


def test_a_range_beyond_the_limit_costs_nothing() -> None:
    assert parse_ordinals("0-999999999999", 3) == {0, 1, 2}
