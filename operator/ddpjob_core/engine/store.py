"""Caches of records that watches and the answers of our own writes keep up to date together.

Both tell of the same objects, in no fixed order: a pod just created is not in the watch yet, and an old event may still
come after a deletion was answered. A newer resourceVersion wins, whoever brings it, and what is known to be gone stays
gone. Events that come twice, late or in another order are therefore harmless.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

_FOREVER: Final = float("inf")
_GRAVES: Final = 8192
"""How many deleted objects are remembered: far more than a stream can be behind."""


class Record(Protocol):
    """What a cached object is known by."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def resource_version(self) -> str:
        """The version that the record shows."""


R = TypeVar("R", bound=Record)
Listener: TypeAlias = Callable[[R | None, R | None], None]
"""Is told of the record before and after a change; None stands for an object that is not there."""


class Store(Generic[R]):
    """Records by namespace and name, and by whatever groups each record belongs to."""

    def __init__(
        self, *, groups: Callable[[R], Iterable[str]] = lambda _: (), listener: Listener[R] = lambda _, __: None
    ) -> None:
        """Args:
        groups: names of the groups that a record is found by.
        listener: called after each change.
        """
        self._groups_of = groups
        self._listener = listener
        self._records: dict[Key, R] = {}
        self._groups: dict[str, dict[Key, R]] = {}
        self._graves: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._records.values()))

    def get(self, namespace: str, name: str) -> R | None:
        """The record of this name."""
        return self._records.get((namespace, name))

    def group(self, name: str) -> tuple[R, ...]:
        """The records of a group, in the order in which they came."""
        return tuple(self._groups.get(name, {}).values())

    def count(self, group: str) -> int:
        """How many records a group has."""
        return len(self._groups.get(group, {}))

    def seen(self, record: R) -> None:
        """A watch or LIST showed this state of an object."""
        self._put(record, replace_equal=False)

    def remember(self, record: R) -> None:
        """A write of ours was answered with this state, which the watch will show later.

        It wins over a cached record of the same version too: a graceful deletion can be answered with the old version.
        """
        self._put(record, replace_equal=True)

    def deleted(self, record: R) -> None:
        """A watch showed that this object is gone, or has lost the label that it was watched by.

        In the second case it can come back under the same uid, with a newer version.
        """
        self._bury(record.uid, version_of(record))
        current = self._records.get((record.namespace, record.name))
        if current is not None and current.uid == record.uid and version_of(current) <= version_of(record):
            # What is shown last may be more than what was known: how a container ended, for one.
            self._drop(current, last=record)

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """An answer told that the object of this uid is gone for good."""
        self._bury(uid, _FOREVER)
        current = self._records.get((namespace, name))
        if current is not None and current.uid == uid:
            self._drop(current)

    def replace(self, records: Iterable[R], list_version: str) -> None:
        """A LIST showed all there is. What it does not show was deleted unnoticed, unless it is newer than the LIST."""
        shown: set[str] = set()
        for record in records:
            shown.add(record.uid)
            self.seen(record)
        at = version_number(list_version)
        for record in tuple(self._records.values()):
            if record.uid not in shown and version_of(record) <= at:
                self._bury(record.uid, at)
                self._drop(record)

    def _put(self, record: R, *, replace_equal: bool) -> None:
        version = version_of(record)
        if version <= self._graves.get(record.uid, -1.0):
            return
        key = (record.namespace, record.name)
        current = self._records.get(key)
        if current is not None:
            newer = version > version_of(current)
            if not newer and not (replace_equal and version == version_of(current) and current != record):
                return
            if current.uid != record.uid:
                # The name has a new holder, so the old one is gone although no deletion was shown.
                self._bury(current.uid, _FOREVER)
            self._leave_groups(key, current)
        self._records[key] = record
        for group in self._groups_of(record):
            self._groups.setdefault(group, {})[key] = record
        self._listener(current, record)

    def _drop(self, record: R, *, last: R | None = None) -> None:
        key = (record.namespace, record.name)
        del self._records[key]
        self._leave_groups(key, record)
        self._listener(last or record, None)

    def _leave_groups(self, key: Key, record: R) -> None:
        for group in self._groups_of(record):
            members = self._groups.get(group, {})
            members.pop(key, None)
            if not members:
                self._groups.pop(group, None)

    def _bury(self, uid: str, version: float) -> None:
        self._graves[uid] = max(version, self._graves.pop(uid, -1.0))
        if len(self._graves) > _GRAVES:
            self._graves.popitem(last=False)


def version_of(record: Record) -> float:
    """The record's version as a number: Kubernetes compares those of one kind as integers (KEP-5504)."""
    return version_number(record.resource_version)


def version_number(version: str) -> float:
    """A resourceVersion as a number, 0 for what is none."""
    # A float holds integers up to 2**53 exactly: at 10,000 writes a second that lasts 28,000 years.
    return float(version) if version.isascii() and version.isdigit() else 0.0
