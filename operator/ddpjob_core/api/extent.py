"""How much a free part of a spec may hold: what is cached of a job, and put into each of its pods, is bounded."""

from typing import Final

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


def excess(value: object) -> str | None:
    """What is too much about a JSON value, as the end of a sentence; None where nothing is.

    It looks no further than the first limit that is exceeded, and is not recursive.
    """
    values, text, rest = 0, 0, [(value, 1)]
    while rest:
        found, depth = rest.pop()
        values += 1
        if isinstance(found, str):
            text += len(found)
        elif isinstance(found, dict | list):
            if depth > DEEPEST:
                return _TOO_DEEP
            if values + len(found) > MOST_VALUES:
                return _TOO_MANY
            if isinstance(found, dict):
                text += sum(len(str(key)) for key in found)
            inner = found.values() if isinstance(found, dict) else found
            rest += [(each, depth + 1) for each in inner]
        if text > MOST_TEXT:
            return _TOO_LONG
        if values + len(rest) > MOST_VALUES:
            return _TOO_MANY
    return None
