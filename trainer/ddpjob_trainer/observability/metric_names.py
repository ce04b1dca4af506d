"""What the numbers of an evaluation may be named, and how many there may be."""

import re
from collections.abc import Mapping
from typing import Final

MOST_METRICS: Final = 32
"""Numbers of an evaluation: each is a time series on every rank."""
ACCURACY: Final = "accuracy"
"""The name of a plain number of which larger is better; from 0 to 1."""
LOSS: Final = "loss"
"""The name of a plain number of which smaller is better."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_name(what: str, name: object) -> None:
    """Check the name of a number.

    Args:
        what: has it, for the message.
        name: to check.

    Raises:
        ValueError: it cannot be a label, or the name of a file, of those who show it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} must be at most 63 letters, digits, dots, dashes and underscores, and begin and end with a letter "
            f"or digit, not {str(name)[:80]!r}"
        )


def named_numbers(found: object, name: str) -> dict[str, float]:
    """What an evaluation has given, by name.

    Args:
        found: a number, or numbers by name.
        name: of a plain number.

    Raises:
        TypeError: it is something else.
        ValueError: a name is unsuitable, or there are too many.
    """
    if not isinstance(found, Mapping):
        try:
            return {name: float(found)}  # type: ignore[arg-type]  # that is the question
        except (TypeError, ValueError):
            raise TypeError(
                f"evaluate must return a number on rank 0, not {type(found).__name__} (or several by name, in a dict)"
            ) from None
    if not 0 < len(found) <= MOST_METRICS:
        raise ValueError(f"evaluate must return from 1 to {MOST_METRICS} numbers, not {len(found)}")
    numbers: dict[str, float] = {}
    for each, value in found.items():
        check_name("the name of a number that evaluate returns", each)
        try:
            numbers[each] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"evaluate must return a number as {each} on rank 0, not {type(value).__name__}") from None
    return numbers
