"""Kubernetes' quantities, as far as processors and devices need them."""

import re
from decimal import Decimal
from typing import Final

LONGEST_QUANTITY: Final = 64
"""Characters, as in the schema: far more than any amount needs."""

_FORM = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_LARGEST_INT_BITS: Final = 64
_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def parse_quantity(value: float | str) -> Decimal | None:
    """The number that a quantity such as 2, "1500m" or "4Gi" stands for, or None for anything else.

    It takes time in proportion to the text, and none for a text that is too long to be a quantity.
    """
    if isinstance(value, str) and len(value) > LONGEST_QUANTITY:
        return None
    if isinstance(value, int) and value.bit_length() > _LARGEST_INT_BITS:
        return None
    match = _FORM.fullmatch(str(value).strip())
    if match is None:
        return None
    number = Decimal(match[1] + (match[2] or ""))
    return number * _SCALES[match[3]] if match[3] else number
