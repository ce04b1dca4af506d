"""How many objects are asked for at a time: by their size, which anyone may choose who may create one."""

from typing import Final

_FIRST: Final = 50
_WANTED: Final = 4 * 2**20
"""Bytes: of small objects this is all that `largest` allows."""
MOST_BYTES: Final = 8 * 2**20
"""Of the answer to a LIST that is read, if it has more than one object."""
_GROWTH: Final = 4
_SHRINKAGE: Final = 4


class PageSize:
    """The number of objects in the next chunk of a LIST: few at first, more as long as they are small."""

    def __init__(self, largest: int) -> None:
        """Args:
        largest: the most objects in a chunk.
        """
        self._largest = largest
        self.limit = min(_FIRST, largest)

    def came(self, objects: int, size: int) -> None:
        """A chunk had so many objects, and so many bytes."""
        fitting = _WANTED * objects // max(size, 1)
        self.limit = min(max(fitting, 1), _GROWTH * self.limit, self._largest)

    def was_too_large(self) -> None:
        """A chunk had more than `MOST_BYTES`."""
        self.limit = max(self.limit // _SHRINKAGE, 1)
