"""What a free part of a spec may hold."""

from typing import Any

import pytest

from ddpjob_core.api.extent import DEEPEST, MOST_TEXT, MOST_VALUES, excess


def nested(levels: int) -> Any:
    value: Any = {}
    for level in range(levels - 1):
        value = [value] if level % 2 else {"x": value}
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, None),
        (nested(DEEPEST), None),
        (nested(DEEPEST + 1), "levels deep"),
        (nested(100_000), "levels deep"),
        ([[]] * (MOST_VALUES - 1), None),
        ([[]] * MOST_VALUES, "values"),
        ([[1] * 200] * 100, "values"),
        ({"args": "a" * (MOST_TEXT - 4)}, None),
        ({"args": "a" * (MOST_TEXT - 3)}, "KiB of text"),
        ({"k" * MOST_TEXT: {"k": 1}}, "KiB of text"),
    ],
)
def test_what_is_too_large_too_deep_or_too_long_is_said(value: object, problem: str | None) -> None:
    found = excess(value)
    assert (found is None) == (problem is None), found
    assert problem is None or problem in (found or "")
