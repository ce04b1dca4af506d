"""How much a free part of a spec may hold: what is cached of a job, and put into each of its pods, is bounded."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

MOST_TEXT: Final = 256 * 1024
"""Characters of all names and texts together: no API object holds more in its annotations either."""
MOST_VALUES: Final = 10_000
"""Objects, lists, texts and numbers; each takes far more memory than its text does."""
DEEPEST: Final = 32
"""Levels of objects and lists in each other. A Pod needs about a dozen."""

_TOO_DEEP: Final = f"must not be nested more than {DEEPEST} levels deep"
_TOO_MANY: Final = f"must not hold more than {MOST_VALUES:,} values (objects, lists, texts and numbers)"
_TOO_LONG: Final = (
    f"must not hold more than {MOST_TEXT // 1024} KiB of text; put large files into a ConfigMap, a volume or the image"
)


_BYTES_PER_VALUE: Final = 100


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a JSON value holds.

    Attributes:
        excess: what is too much about it, as the end of a sentence; None where nothing is.
        size: about how many bytes it takes in memory, as far as it was looked at.
    """

    excess: str | None
    size: int


def excess(value: object) -> str | None:
    """See `Extent.excess`."""
    return extent(value).excess


def extent(value: object) -> Extent:
    """How much a JSON value holds.

    It looks no further than the level on which a limit is exceeded, and is not recursive.
    """
    values, text = 1, len(value) if isinstance(value, str) else 0
    # Level by level, and of each level only what can hold more: nothing is made for a value.
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    depth, found = 1, _TOO_LONG if text > MOST_TEXT else None
    while level and found is None:
        inner: list[Any] = []
        values += sum(map(len, level))
        if depth > DEEPEST:
            found = _TOO_DEEP
        elif values > MOST_VALUES:
            found = _TOO_MANY
        else:
            text += _text_of(level, inner)
            found = _TOO_LONG if text > MOST_TEXT else None
        level = inner
        depth += 1
    return Extent(found, text + _BYTES_PER_VALUE * values)


def _text_of(level: Iterable[Any], inner: list[Any]) -> int:
    """Characters of the names and texts of some lists and objects, whose own lists and objects are added to `inner`."""
    text = 0
    for holder in level:
        if isinstance(holder, dict):
            text += sum(len(str(key)) for key in holder)
            holder = holder.values()  # noqa: PLW2901 its keys are counted
        for each in holder:
            if isinstance(each, str):
                text += len(each)
            elif isinstance(each, dict | list):
                inner.append(each)
    return text
