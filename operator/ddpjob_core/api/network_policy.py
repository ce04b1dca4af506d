"""The NetworkPolicy of a job, as far as all need to know of it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from ddpjob_core.api.names import is_namespace, not_a_namespace

KIND: Final = "NetworkPolicy"
SAYS: Final = ("podSelector", "policyTypes", "ingress")
"""Fields of its spec that say who may connect to which pods."""


class IsolationError(ValueError):
    """The namespaces are wrong; the text says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """That each job gets a NetworkPolicy.

    Attributes:
        metrics_namespaces: whose pods read metrics and progress, in order: the operator's own and those of Prometheus.
    """

    metrics_namespaces: tuple[str, ...]

    @classmethod
    def of(cls, own: str, given: Sequence[str]) -> Self:
        """The isolation by an operator in the namespace `own`, with names or lists of names separated by commas.

        Raises:
            IsolationError: a name is not one that a namespace can have.
        """
        names = [name for each in given for name in each.split(",")]
        for name in names:
            if not is_namespace(name):
                raise IsolationError(not_a_namespace(name))
        return cls(tuple(sorted({own, *names})))


def content_of(spec: object) -> str:
    """A hash of what the spec of a policy says, "" where it cannot be one."""
    if not isinstance(spec, Mapping):
        return ""
    said: dict[str, Any] = {field: spec.get(field) for field in SAYS}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
