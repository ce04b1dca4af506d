"""A JSON object that a program wrote, read field by field: each value has a type and a range, or counts as missing.

A program may write anything, by mistake or on purpose. What is kept of it is bounded here, once, so that no rule and no
status has to expect more.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

from ddpjob_core.api.base import parse_time
from ddpjob_core.api.text import last_lines, one_line

MOST_STEPS: Final = 2**53
"""The largest whole number up to which every JSON reader is exact."""
MOST_SECONDS: Final = 1e9
"""About 30 years: the longest span that a program may report."""
LARGEST_MESSAGE: Final = 64 * 1024
"""Characters or bytes of JSON that are read at all."""

E = TypeVar("E", bound=StrEnum)


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object that the text is; None where it is something else, too long or too deep."""
    if len(text) > LARGEST_MESSAGE:
        return None
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


class Fields:
    """The fields of one object.

    Attributes:
        dropped: names of the fields whose values were of a wrong type or out of their range, those of objects inside
            after the name of the field that holds them.
    """

    def __init__(self, raw: Mapping[str, Any], *, prefix: str = "", dropped: set[str] | None = None) -> None:
        """Args:
        raw: the object.
        prefix: of the names in `dropped`.
        dropped: where to add them.
        """
        self._raw = raw
        self._prefix = prefix
        self.dropped: set[str] = set() if dropped is None else dropped

    def whole(self, name: str, most: int, *, least: int = 0) -> int | None:
        """An integer of this range."""
        value = self._raw.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self._drop(name, value)
        return None

    def number(self, name: str, most: float, *, least: float = 0.0) -> float | None:
        """A number of this range; neither NaN nor infinity is one."""
        value = self._raw.get(name)
        # Compared before it is converted: JSON has integers that no float can hold.
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        self._drop(name, value)
        return None

    def flag(self, name: str) -> bool:
        """Whether the field is true."""
        value = self._raw.get(name)
        if not isinstance(value, bool):
            self._drop(name, value)
        return value is True

    def line(self, name: str, most: int) -> str | None:
        """One line of text, cut to `most` characters; None for an empty one."""
        value = self._raw.get(name)
        if isinstance(value, str):
            return one_line(value, most) or None
        self._drop(name, value)
        return None

    def lines(self, name: str, most: int) -> str | None:
        """Lines of text, of which the last `most` characters are kept; None for an empty one."""
        value = self._raw.get(name)
        if isinstance(value, str):
            return last_lines(value, most).strip("\n") or None
        self._drop(name, value)
        return None

    def word(self, name: str, form: re.Pattern[str]) -> str | None:
        """A text of this form."""
        value = self._raw.get(name)
        if isinstance(value, str) and form.fullmatch(value):
            return value
        self._drop(name, value)
        return None

    def choice(self, name: str, kind: type[E]) -> E | None:
        """One of the values of an enumeration."""
        value = self._raw.get(name)
        known = next((each for each in kind if each.value == value), None)
        if known is None:
            self._drop(name, value)
        return known

    def time(self, name: str) -> datetime | None:
        """A moment in RFC 3339."""
        value = self._raw.get(name)
        moment = parse_time(value)
        if moment is None:
            self._drop(name, value)
        return moment

    def inner(self, name: str) -> "Fields | None":
        """An object."""
        value = self._raw.get(name)
        if isinstance(value, dict):
            return self._inside(name, value)
        self._drop(name, value)
        return None

    def each(self, name: str, most: int) -> "Iterator[Fields]":
        """The first `most` objects of a list."""
        value = self._raw.get(name)
        if not isinstance(value, list):
            self._drop(name, value)
            return
        if len(value) > most or not all(isinstance(item, dict) for item in value[:most]):
            self._drop(name, value)
        yield from (self._inside(name, item) for item in value[:most] if isinstance(item, dict))

    def _inside(self, name: str, raw: Mapping[str, Any]) -> "Fields":
        return Fields(raw, prefix=f"{self._prefix}{name}.", dropped=self.dropped)

    def _drop(self, name: str, value: object) -> None:
        # A program that does not know a value yet reports null.
        if value is not None:
            self.dropped.add(f"{self._prefix}{name}")
