"""Which namespaces' jobs an operator serves, and the Lease that stands for them.

Operators whose scopes have a namespace in common must not lead at the same time. Each finds the others' scopes in their
Leases: in the name of a Lease for one namespace or for all, in an annotation of one for several.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from ddpjob_core.api.names import is_namespace, not_a_namespace

LEASE_NAME: Final = "ddpjob-operator"
LEASE_NAMESPACE: Final = "ddpjob-system"
"""The same for all operators of a cluster unless they are given another one: an operator is seen by another one only
where both keep their Leases."""
SCOPE_ANNOTATION: Final = "ddpjob.dev/namespaces"
"""On the Lease for several namespaces: their names, sorted, separated by commas."""
MOST_NAMESPACES: Final = 100
"""Each has three or four watches of its own; beyond that, one watch of all namespaces costs less."""

_LIST_PREFIX: Final = f"{LEASE_NAME}.namespaces."
_HASH_LENGTH: Final = 32
_NAMED: Final = 3


class ScopeError(ValueError):
    """The names of the namespaces to serve are wrong; the text says how, and what to do."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces that an operator serves.

    Attributes:
        namespaces: their names, at least one; None stands for all that there are.
    """

    namespaces: frozenset[str] | None = None

    @classmethod
    def of(cls, *namespaces: str) -> Self:
        """The scope of these namespaces, at least one."""
        return cls.parse(namespaces)

    @classmethod
    def parse(cls, given: Sequence[str]) -> Self:
        """The scope that is given as names, or lists of names separated by commas; none at all stands for all.

        Raises:
            ScopeError: a name is empty, is not one that a namespace can have, or is given twice, or there are too many.
        """
        if not given:
            return cls()
        names = [name for each in given for name in each.split(",")]
        if len(names) > MOST_NAMESPACES:
            raise ScopeError(
                f"{len(names)} namespaces are more than {MOST_NAMESPACES}: divide them among several operators, or leave "
                "the flag out to serve all namespaces"
            )
        for place, name in enumerate(names):
            if not name:
                raise ScopeError("a name is empty; leave the flag out to serve all namespaces")
            if not is_namespace(name):
                raise ScopeError(not_a_namespace(name))
            if name in names[:place]:
                raise ScopeError(f"{name!r} is given twice")
        return cls(frozenset(names))

    @property
    def watched(self) -> tuple[str | None, ...]:
        """What is listed and watched: each namespace by itself, in order, or all at once, which None stands for."""
        return (None,) if self.namespaces is None else tuple(sorted(self.namespaces))

    @property
    def lease(self) -> str:
        """The name of the Lease."""
        if self.namespaces is None:
            return LEASE_NAME
        if len(self.namespaces) == 1:
            # A namespace has no dot in its name.
            return f"{LEASE_NAME}.{next(iter(self.namespaces))}"
        return f"{_LIST_PREFIX}{hashlib.sha256(self._listed.encode()).hexdigest()[:_HASH_LENGTH]}"

    @property
    def annotations(self) -> dict[str, str]:
        """What the Lease says besides its name."""
        return {SCOPE_ANNOTATION: self._listed} if self.namespaces is not None and len(self.namespaces) > 1 else {}

    @property
    def _listed(self) -> str:
        return ",".join(sorted(self.namespaces or ()))

    def __contains__(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def common(self, other: "Scope") -> "Scope | None":
        """What both serve, None where they have nothing in common."""
        if self.namespaces is None:
            return other
        both = self.namespaces if other.namespaces is None else self.namespaces & other.namespaces
        return Scope(both) if both else None

    def __str__(self) -> str:
        """In words, with at most a few names."""
        if self.namespaces is None:
            return "all namespaces"
        return f"namespace{'s' if len(self.namespaces) > 1 else ''} {names_of(self.namespaces)}"


def scope_of_lease(name: str, annotations: Any) -> Scope | None:  # noqa: ANN401 anything that JSON holds
    """The scope that a Lease stands for, None where its name and annotations do not say it."""
    if name == LEASE_NAME:
        return Scope()
    said: object = name.removeprefix(f"{LEASE_NAME}.")
    if name.startswith(_LIST_PREFIX):
        said = annotations.get(SCOPE_ANNOTATION) if isinstance(annotations, dict) else None
    try:
        found = Scope.parse([said]) if isinstance(said, str) else None
    except ScopeError:
        return None
    # Otherwise it says less or more than the one that made it knew.
    return found if found is not None and found.lease == name else None


def names_of(namespaces: Iterable[str]) -> str:
    """Names in order, the rest of many as a number."""
    names = sorted(namespaces)
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
