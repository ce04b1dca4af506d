"""The engine's `ObjectApi` within this process: objects in memory, and pods that are processes."""

import copy
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from ddpjob_core.api.base import format_time
from ddpjob_core.api.errors import AlreadyExists, Conflict, NotFound
from ddpjob_core.api.resources import EVENTS, PODS, Resource
from ddpjob_core.engine.protocols import Json

Key: TypeAlias = tuple[str, str, str]
Changed: TypeAlias = Callable[[Resource, Json, bool], None]
"""Called with an object that was created, has changed or, with True, was deleted."""

_DEFAULT_GRACE: Final = 30


class Kubelet(Protocol):
    """Runs pods."""

    def admit(self, pod: Json) -> None:
        """Start a pod that was created."""

    def stop(self, pod: Json, grace_seconds: int) -> None:
        """Stop a pod that is being deleted, by force after so many seconds."""


class Objects:
    """Objects by kind, namespace and name; each write gives a newer resourceVersion."""

    def __init__(self, *, now: Callable[[], datetime], new_uid: Callable[[], str]) -> None:
        """Args:
        now: wall clock.
        new_uid: generates uids.
        """
        self._now = now
        self._new_uid = new_uid
        self._version = 0
        self._objects: dict[Key, Json] = {}
        self._changed: Changed = lambda *_: None

    def listen(self, changed: Changed) -> None:
        """Call this at every change from now on."""
        self._changed = changed

    def add(self, resource: Resource, manifest: Json) -> Json:
        """Store a new object, with the fields that an API server fills in unless they are given.

        Raises:
            AlreadyExists: the name is taken.
        """
        raw = copy.deepcopy(manifest)
        metadata = raw["metadata"]
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{self._new_uid()[:8]}"
        key = _key(resource, metadata["namespace"], metadata["name"])
        if key in self._objects:
            raise AlreadyExists(f"{resource.plural} {metadata['name']} exists")
        metadata.setdefault("uid", self._new_uid())
        metadata.setdefault("creationTimestamp", format_time(self._now()))
        return self._keep(resource, key, raw)

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """An object as it is.

        Raises:
            NotFound: it does not exist.
        """
        found = self._objects.get(_key(resource, namespace, name))
        if found is None:
            raise NotFound(f"{resource.plural} {name} not found")
        return copy.deepcopy(found)

    def change(self, resource: Resource, namespace: str, name: str, change: Callable[[Json], None]) -> Json:
        """Change an object.

        Raises:
            NotFound: it does not exist.
        """
        raw = self.get(resource, namespace, name)
        change(raw)
        return self._keep(resource, _key(resource, namespace, name), raw)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object; one that does not exist counts as deleted."""
        raw = self._objects.pop(_key(resource, namespace, name), None)
        if raw is not None:
            self._version += 1
            raw["metadata"]["resourceVersion"] = str(self._version)
            self._changed(resource, raw, True)  # noqa: FBT003 the type above says what it is

    def _keep(self, resource: Resource, key: Key, raw: Json) -> Json:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = raw
        self._changed(resource, copy.deepcopy(raw), False)  # noqa: FBT003 the type above says what it is
        return copy.deepcopy(raw)


class LocalKube:
    """An `ObjectApi` over `Objects` and a kubelet."""

    def __init__(self, objects: Objects, kubelet: Kubelet, *, now: Callable[[], datetime]) -> None:
        """Args:
        objects: where the objects are stored.
        kubelet: runs the pods.
        now: wall clock.
        """
        self._objects = objects
        self._kubelet = kubelet
        self._now = now

    async def create(self, resource: Resource, manifest: Json, *, strict: bool = False) -> Json:  # noqa: ARG002 the template was checked when the file was read
        """See `ObjectApi.create`."""
        raw = self._objects.add(resource, manifest)
        if resource == PODS:
            self._kubelet.admit(raw)
            return self._objects.get(resource, manifest["metadata"]["namespace"], raw["metadata"]["name"])
        if resource == EVENTS:
            # The listener has seen it, and nothing reads it again.
            self._objects.remove(resource, raw["metadata"]["namespace"], raw["metadata"]["name"])
        return raw

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """See `ObjectApi.get`."""
        return self._objects.get(resource, namespace, name)

    async def find(self, resource: Resource, namespace: str, name: str) -> Json:
        """See `ObjectApi.find`."""
        return await self.get(resource, namespace, name)

    async def replace(self, resource: Resource, manifest: Json) -> Json:  # noqa: ARG002 see below
        """See `ObjectApi.replace`."""
        raise AssertionError("there are no NetworkPolicies on one machine, and nothing else is replaced")

    async def replace_status(self, resource: Resource, manifest: Json) -> Json:
        """See `ObjectApi.replace_status`."""
        metadata = manifest["metadata"]
        found = self._objects.get(resource, metadata["namespace"], metadata["name"])
        if found["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(f"{resource.plural} {metadata['name']} has changed")
        return self._objects.change(
            resource,
            metadata["namespace"],
            metadata["name"],
            lambda raw: raw.update(status=copy.deepcopy(manifest["status"])),
        )

    async def patch(self, resource: Resource, namespace: str, name: str, change: Json) -> Json:  # noqa: ARG002 see below
        """See `ObjectApi.patch`."""
        raise AssertionError("a job keeps its size on one machine: spec.elastic is left out when its manifest is read")

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> Json:
        """See `ObjectApi.delete`."""
        found = self._objects.get(resource, namespace, name)
        if found["metadata"]["uid"] != uid:
            raise Conflict(f"{resource.plural} {name} has another uid")
        if resource_version not in ("", found["metadata"]["resourceVersion"]):
            raise Conflict(f"{resource.plural} {name} has changed")
        if resource != PODS:
            self._objects.remove(resource, namespace, name)
            return found
        asked = found["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        grace = int(asked) if grace_seconds is None else grace_seconds

        def mark(raw: Json) -> None:
            raw["metadata"].setdefault("deletionTimestamp", format_time(self._now()))
            raw["metadata"]["deletionGracePeriodSeconds"] = grace

        marked = self._objects.change(resource, namespace, name, mark)
        self._kubelet.stop(marked, grace)
        return marked


def _key(resource: Resource, namespace: str, name: str) -> Key:
    return resource.plural, namespace, name
