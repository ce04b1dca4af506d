"""Kinds of objects, and where the API server serves them."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ddpjob_core.api.constants import GROUP, PLURAL, VERSION
from ddpjob_core.api.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object and where the API server serves it."""

    prefix: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of the collection or of one object.

        Raises:
            UsageProblem: a name would lead to another path.
        """
        parts = [self.prefix]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        return "/".join([*parts, subresource] if subresource else parts)

    @property
    def group(self) -> str:
        """Name of the API group, "" for the core one."""
        return self.prefix.split("/")[2] if self.prefix.startswith("/apis/") else ""


def _segment(name: str) -> str:
    # Quoting leaves dots as they are, and a client takes such segments away.
    if name in ("", ".", ".."):
        raise UsageProblem(f"no object can have the name {name!r}")
    # In the name of a pod that is asked for by proxy a colon stands before the port.
    return quote(name, safe=":")


PODS: Final = Resource("/api/v1", "pods")
SERVICES: Final = Resource("/api/v1", "services")
CONFIG_MAPS: Final = Resource("/api/v1", "configmaps")
SECRETS: Final = Resource("/api/v1", "secrets")
CLAIMS: Final = Resource("/api/v1", "persistentvolumeclaims")
EVENTS: Final = Resource("/api/v1", "events")
NETWORK_POLICIES: Final = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
LEASES: Final = Resource("/apis/coordination.k8s.io/v1", "leases")
JOBS: Final = Resource(f"/apis/{GROUP}/{VERSION}", PLURAL)
