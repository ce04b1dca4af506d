"""Numbers in the few characters of a column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.display import format_count, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (38, "38s"), (60, "1m"), (310, "5m10s"), (3600, "1h"), (7500, "2h5m"), (273600, "3d4h"), (-5, "0s")],
)
def test_spans_are_shown_as_kubectl_shows_ages(seconds: int, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.834, "0.83"),
        (12.5, "12.5"),
        (950, "950"),
        (999.7, "1k"),
        (1234, "1.2k"),
        (48_000, "48k"),
        (3.1e6, "3.1M"),
        (0, "0"),
    ],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert format_count(value) == text


@given(st.floats(0, 1e15))
def test_every_count_is_shown_in_a_few_characters(value: float) -> None:
    assert len(format_count(value)) <= 8
