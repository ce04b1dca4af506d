"""What the engine needs from outside: an API to objects, metrics, HTTP to the ranks, and keys for ssh.

The operator implements these with a cluster's client, Prometheus and aiohttp; a run on one machine with the standard
library.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

from ddpjob_core.api.resources import Resource
from ddpjob_core.api.status import DDPJobStatus

Json: TypeAlias = dict[str, Any]


class ObjectApi(Protocol):
    """Where objects are kept. Every method raises an `ApiError`."""

    async def create(self, resource: Resource, manifest: Json, *, strict: bool = False) -> Json:
        """POST an object; `strict` refuses unknown and duplicate fields as Invalid. Returns what was stored."""
        ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """One object as it is now."""
        ...

    async def find(self, resource: Resource, namespace: str, name: str) -> Json:
        """The same with the right to list and not to get; NotFound where there is no such object."""
        ...

    async def replace(self, resource: Resource, manifest: Json) -> Json:
        """PUT an object whose metadata hold the resourceVersion that it replaces; else Conflict. Returns the object."""
        ...

    async def replace_status(self, resource: Resource, manifest: Json) -> Json:
        """PUT the status of an object whose metadata hold the resourceVersion it was decided on; else Conflict."""
        ...

    async def patch(self, resource: Resource, namespace: str, name: str, change: Json) -> Json:
        """Merge a change into an object; Conflict where the change names another uid. Returns the object."""
        ...

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
        """DELETE the object with this uid (Conflict if another has the name), what it owns in the background.

        With a `resource_version` also Conflict if it has another.
        Returns the object, which may live on until its grace period has passed, or a Status.
        """
        ...


class Leadership(Protocol):
    """Whether this process is the one that writes, and since which term."""

    def epoch_over(self, written: int | None) -> int | None:
        """`leaderEpoch` of a status that replaces one with `written`; None leaves the field out.

        Raises:
            NotLeading: this process does not lead, or must first find out whether it still does.
        """
        ...


class Alone:
    """The `Leadership` of a process that no other one shares its jobs with."""

    def epoch_over(self, written: int | None) -> int | None:
        """See `Leadership.epoch_over`."""
        return written


class Metrics(Protocol):
    """What is counted of the engine's work."""

    def reconciling(self) -> AbstractContextManager[object]:
        """Measure how long one reconcile takes, from entering to leaving."""
        ...

    def reconcile_failed(self) -> None:
        """A reconcile ended in an unexpected error."""

    def status_conflict(self) -> None:
        """A status write was refused because the job had changed."""

    def status_refused(self) -> None:
        """A status, or a part of it, was refused as invalid or forbidden."""

    def status_written(self, before: DDPJobStatus | None, after: DDPJobStatus) -> None:
        """A status replaced another one."""

    def polled(self, outcome: str) -> None:
        """A poll of a rank's progress ended with this outcome, in one word."""

    def dropped(self, source: str, field: str) -> None:
        """A value that a pod reported was of a wrong type or out of range; `source` is progress or termination."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `body` is empty unless the status is 200."""

    status: int
    body: bytes


class Door(Enum):
    """What became of an attempt to connect."""

    OPEN = auto()
    CLOSED = auto()
    """It was refused, or failed at once."""
    SILENT = auto()
    """Neither in a time in which a healthy endpoint answers, by far."""


class Transport(Protocol):
    """Sends HTTP requests to ranks."""

    async def get(self, address: str, port: int, path: str, *, limit: int) -> Answer:
        """GET without following a redirect or decompressing anything, reading little more than `limit` bytes of body.

        The caller limits the time by cancellation.

        Raises:
            OSError: no connection, or it broke before the whole answer had come.
            ValueError: the answer is not HTTP.
        """
        ...

    async def knock(self, places: Sequence[tuple[str, int]]) -> Sequence[Door]:
        """Whether something listens at each of these IP addresses and ports; nothing is sent. Never fails."""
        ...


OpenTransport: TypeAlias = Callable[[], AbstractAsyncContextManager[Transport]]


@dataclass(frozen=True, slots=True)
class SshKey:
    """A pair of keys, each in OpenSSH's own text form."""

    private: str
    public: str


NewSshKey: TypeAlias = Callable[[], SshKey]
