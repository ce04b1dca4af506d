"""Items that are taken in turn, so that none waits behind thousands that belong to another."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Items under a path, such as namespace and job: each namespace is served in turn, and in it each job.

    Items with the same path are served in the order in which they came. Every operation takes a time that depends on
    the length of the path alone.
    """

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._items: dict[T, None] = {}
        self._groups: dict[Hashable, FairQueue[T]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, item: T, *path: Hashable) -> bool:
        """Let an item wait; False if it waits under this path already, where it keeps its place."""
        if path:
            group = self._groups.get(path[0])
            if group is None:
                group = self._groups[path[0]] = FairQueue()
            added = group.add(item, *path[1:])
        else:
            added = item not in self._items
            self._items.setdefault(item)
        self._length += added
        return added

    def take(self) -> T:
        """The item whose turn it is, taken out.

        Raises:
            IndexError: nothing waits.
        """
        if self._items:
            item = next(iter(self._items))
            del self._items[item]
        elif self._groups:
            name = next(iter(self._groups))
            group = self._groups.pop(name)
            item = group.take()
            if group:
                # Its next turn comes after all others'.
                self._groups[name] = group
        else:
            raise IndexError("nothing waits")
        self._length -= 1
        return item

    def ahead_of(self, index: int) -> int:
        """How many items may be taken up to and with the one that has so many before it in its own group."""
        return sum(min(len(group), index + 1) for group in self._groups.values())

    def discard(self, item: T, *path: Hashable) -> bool:
        """Take an item out before its turn; whether it waited."""
        if path:
            group = self._groups.get(path[0])
            found = group is not None and group.discard(item, *path[1:])
            if group is not None and not group:
                del self._groups[path[0]]
        else:
            found = item in self._items
            self._items.pop(item, None)
        self._length -= found
        return found
