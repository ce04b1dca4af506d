"""Settings that are one of a few words."""

from enum import StrEnum
from typing import TypeVar

_Word = TypeVar("_Word", bound=StrEnum)


def one_of(words: type[_Word], field: str, value: str) -> _Word:
    """The word that a setting names; a plain string is accepted too.

    Args:
        words: that the setting may be.
        field: its name, for the message.
        value: as it was given.

    Raises:
        ValueError: the value is not one of the words.
    """
    try:
        return words(value)
    except ValueError:
        raise ValueError(f"{field} must be one of {', '.join(words)}, not {str(value)!r}") from None
