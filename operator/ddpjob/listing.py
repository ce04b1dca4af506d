"""Lists in messages: the first few by name, the others by their number."""

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> list[str]:
    """The first `most` items, and where there are others a last item that counts them."""
    rest = len(items) - most
    return [*items[:most], *([f"and {rest} more"] if rest > 0 else [])]
