"""Caches of records, kept up to date by watches and by the answers to our own writes together.

Both report the same objects, in no fixed order: a pod that was just created is not in the watch yet, and an old event
may arrive after a deletion was answered. The newer resourceVersion wins, whichever source it comes from, and an object
that is known to be deleted stays deleted. Events that arrive twice, late or in another order are therefore harmless.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

_FOREVER: Final = float("inf")
_TOMBSTONES: Final = 8192
"""How many deleted objects are remembered: far more than a watch can lag behind."""


class Record(Protocol):
    """What identifies a cached object."""

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
"""Called with the record before and after a change; None stands for an object that does not exist."""


class Store(Generic[R]):
    """Records by namespace and name, and by the groups that each record belongs to."""

    def __init__(
        self,
        *,
        groups: Callable[[R], Iterable[str]] = lambda _: (),
        listener: Listener[R] = lambda _, __: None,
        stamp: Callable[[R | None, R], R] = lambda _, record: record,
    ) -> None:
        """Args:
        groups: names of the groups that a record belongs to.
        listener: called after each change.
        stamp: adds to a new record what only this process knows, given the record that was cached of its name.
        """
        self._groups_of = groups
        self._stamp = stamp
        self._listener = listener
        self._records: dict[Key, R] = {}
        self._groups: dict[str, dict[Key, R]] = {}
        self._tombstones: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._records.values()))

    def get(self, namespace: str, name: str) -> R | None:
        """The record of this name."""
        return self._records.get((namespace, name))

    def shows(self, metadata: Mapping[str, object]) -> bool:
        """Whether this very version of an object is cached, given the metadata of the raw object."""
        namespace, name, version = (metadata.get(key) for key in ("namespace", "name", "resourceVersion"))
        if not isinstance(namespace, str) or not isinstance(name, str):
            return False
        current = self._records.get((namespace, name))
        return current is not None and (current.uid, current.resource_version) == (metadata.get("uid"), version)

    def group(self, name: str) -> tuple[R, ...]:
        """The records of a group, in the order in which they came."""
        return tuple(self._groups.get(name, {}).values())

    def count(self, group: str) -> int:
        """How many records a group has."""
        return len(self._groups.get(group, {}))

    def seen(self, record: R) -> None:
        """A watch or a LIST showed this state of an object."""
        self._put(record, replace_equal=False)

    def remember(self, record: R) -> None:
        """One of our writes was answered with this state, which the watch will show later.

        It also replaces a cached record of the same version: a graceful deletion can be answered with the old version.
        """
        self._put(record, replace_equal=True)

    def deleted(self, record: R) -> None:
        """A watch showed that this object was deleted, or has lost the label that the watch selects.

        In the second case it can come back with the same uid and a newer version.
        """
        self._mark_deleted(record.uid, version_of(record))
        current = self._records.get((record.namespace, record.name))
        if current is not None and current.uid == record.uid and version_of(current) <= version_of(record):
            # The last state may say more than the cached one, such as how a container ended.
            self._drop(current, last=self._stamp(current, record))

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """An answer showed that the object with this uid no longer exists."""
        self._mark_deleted(uid, _FOREVER)
        current = self._records.get((namespace, name))
        if current is not None and current.uid == uid:
            self._drop(current)

    def replace(self, records: Iterable[R], list_version: str, namespace: str | None = None) -> None:
        """A LIST showed every object. Others were deleted unnoticed, unless they are newer than the LIST.

        Args:
            records: what it showed.
            list_version: of the LIST.
            namespace: the only one that was listed, None for all.
        """
        shown: set[str] = set()
        for record in records:
            shown.add(record.uid)
            self.seen(record)
        self.keep_only(shown, list_version, namespace)

    def keep_only(self, shown: Container[str], list_version: str, namespace: str | None = None) -> None:
        """A LIST showed these uids and no others: all other objects are gone, unless they are newer than the LIST.

        Args:
            shown: the uids.
            list_version: of the LIST.
            namespace: the only one that was listed, None for all.
        """
        at = version_number(list_version)
        for record in tuple(self._records.values()):
            listed = namespace is None or record.namespace == namespace
            if listed and record.uid not in shown and version_of(record) <= at:
                self._mark_deleted(record.uid, at)
                self._drop(record)

    def _put(self, record: R, *, replace_equal: bool) -> None:
        version = version_of(record)
        if version <= self._tombstones.get(record.uid, -1.0):
            return
        key = (record.namespace, record.name)
        current = self._records.get(key)
        record = self._stamp(current, record)
        if current is not None:
            newer = version > version_of(current)
            if not newer and not (replace_equal and version == version_of(current) and current != record):
                return
            if current.uid != record.uid:
                # Another object has the name, so the old one is gone although no deletion was shown.
                self._mark_deleted(current.uid, _FOREVER)
            self._leave_groups(key, current)
        self._records[key] = self._kept(record)
        for group in self._groups_of(record):
            self._groups.setdefault(group, {})[key] = record
        self._listener(current, record)

    def _kept(self, record: R) -> R:
        """The form in which a record is kept."""
        return record

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

    def _mark_deleted(self, uid: str, version: float) -> None:
        self._tombstones[uid] = max(version, self._tombstones.pop(uid, -1.0))
        if len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)


def version_of(record: Record) -> float:
    """The record's version as a number: versions of one kind are compared as integers (KEP-5504)."""
    return version_number(record.resource_version)


def version_number(version: str) -> float:
    """A resourceVersion as a number, 0 where it is not one."""
    # A float holds integers up to 2**53 exactly: enough for 28,000 years at 10,000 writes per second.
    return float(version) if version.isascii() and version.isdigit() else 0.0
