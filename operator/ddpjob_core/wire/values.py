"""JSON values that a program wrote: those of a wrong type count as missing."""

import math


def whole_number(value: object) -> int | None:
    """The value if it is an integer that JSON can tell apart from its neighbours, else None."""
    # The bound keeps what a program reports inside the CRD's int64.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= abs(value) < 2**53 else None


def finite_number(value: object) -> float | None:
    """The value as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def text_or_none(value: object) -> str | None:
    """The value if it is a text, in a form that UTF-8 can hold, else None."""
    # JSON can hold half a surrogate pair, which no status can.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
