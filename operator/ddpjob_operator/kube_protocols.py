"""What the operator asks of an API server, and who is asked before it writes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ddpjob_core.api.resources import Resource
from ddpjob_core.engine.protocols import Json, ObjectApi
from ddpjob_operator.watch_lines import Shows, WatchEvent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A chunk of a LIST; all chunks of one LIST have the same resource version."""

    items: list[T]
    """What was kept of its objects."""
    resource_version: str


class Kube(ObjectApi, Protocol):
    """The API server, which can also list objects and watch their changes. Every method raises an `ApiError`."""

    def list_pages(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        keep: Callable[[Json], T],
        selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page[T], None]:
        """LIST in chunks, consistent with the newest writes. Raises Expired where the list has to be started again.

        Only one whole object is in memory at a time: `keep` makes of each what is returned of it. With `metadata_only`
        they have neither spec nor status.
        """
        ...

    def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        since: str,
        seconds: float,
        silence: float,
        selector: str = "",
        opened: Callable[[], None] = lambda: None,
        shows: Shows = lambda _: False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """WATCH for `seconds`, with bookmarks; ends when the server ends it. Calls `opened` once it has begun.

        A state that the caller has already, as `shows` says of its namespace, name, uid and resourceVersion, may come
        as a bookmark: it is not parsed.

        Raises Unavailable where nothing came for `silence` seconds or the stream broke, Expired where `since` is too
        old.
        """
        ...


class Guard(Protocol):
    """Decides whether this process may write. Both methods raise NotLeading where it may not."""

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Around a write, from before it waits for its turn until its answer has been read."""
        ...

    def check(self) -> None:
        """Right before the write is sent."""
