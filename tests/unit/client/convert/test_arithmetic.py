"""The inside of $((...))."""

import pytest

from ddpjob.convert.arithmetic import evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * 4", 8),
        ("$A * ${B} - C", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("(1 + 2) * -3", -9),
        ("2 ** 10", 1024),
        ("+1", 1),
        ("1 / 0", None),
        ("2 ** 99", None),
        ("9 ** 62 ** 9", None),
        ("A + unknown", None),
        ("A = 5", None),
        ("__import__('os')", None),
        ("True + 1", None),
        ("1.5 + 1", None),
        ("(" * 300 + "1" + ")" * 300, None),
        ("", None),
    ],
)
def test_arithmetic_is_reckoned_as_a_shell_does_it_or_not_at_all(text: str, value: int | None) -> None:
    assert evaluate(text, {"A": 3, "B": 4, "C": 3}.get) == value
