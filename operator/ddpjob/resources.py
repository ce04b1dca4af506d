"""Kinds of objects, and where the API server serves them."""

from dataclasses import dataclass
from typing import Final

from ddpjob.api.constants import GROUP, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object and where the API server serves it."""

    prefix: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of the collection or of one object."""
        parts = [self.prefix, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    @property
    def group(self) -> str:
        """Name of the API group, "" for the core one."""
        return self.prefix.split("/")[2] if self.prefix.startswith("/apis/") else ""


PODS: Final = Resource("/api/v1", "pods")
SERVICES: Final = Resource("/api/v1", "services")
CONFIG_MAPS: Final = Resource("/api/v1", "configmaps")
CLAIMS: Final = Resource("/api/v1", "persistentvolumeclaims")
EVENTS: Final = Resource("/api/v1", "events")
JOBS: Final = Resource(f"/apis/{GROUP}/{VERSION}", PLURAL)
