"""Keeps a store in sync with the API server: LIST, then WATCH, through every way in which a stream can fail."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic

from ddpjob_core.api.errors import ApiError, Expired, Forbidden, NotFound
from ddpjob_core.api.resources import Resource
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.store import R, Store, version_number
from ddpjob_operator.kube_protocols import Kube
from ddpjob_operator.watch_lines import WatchEvent

_DOUBTED_AFTER: Final = 3
"""Consecutive failures after which the version to watch from is no longer trusted, and all is listed again."""
_SHORTEST_WATCH: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How long things may take, in seconds.

    A watch is short: a stream that died silently is detected soon, and the reconnect proves that it is alive.
    """

    watch: float = 30.0
    silence: float = 40.0
    first_backoff: float = 0.2
    longest_backoff: float = 2.0
    longest_refusal: float = 8.0
    """Between two tries to watch what the API server refuses to show, such as in a namespace without the Role."""


class Informer(Generic[R]):
    """Follows all objects of one resource that match a label selector."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        store: Store[R],
        parse: Callable[[Json], R | None],
        *,
        namespace: str | None,
        selector: str,
        clock: Callable[[], float],
        limits: WatchLimits | None = None,
        reconnected: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Args:
        kube: the API server.
        resource: what is watched.
        store: what is kept up to date.
        parse: makes a record of a raw object, None for one without name, namespace or uid.
        namespace: the only one to watch, None for all.
        selector: label selector, evaluated by the server.
        clock: monotonic seconds.
        limits: durations.
        reconnected: called with why a stream ended, in one word.
        """
        self._kube = kube
        self._resource = resource
        self._store = store
        self._parse = parse
        self._namespace = namespace
        self._selector = selector
        self._clock = clock
        self._limits = limits or WatchLimits()
        self._reconnected = reconnected
        self._since: str | None = None
        self._moved = False
        self._refusals = 0
        self.refused: str | None = None
        """Why the API server does not show these objects, None where it does."""
        self._alive_at = self._moved_at = clock()
        self.synced = asyncio.Event()
        """Set once the first LIST is in the store."""

    @property
    def silent_for(self) -> float:
        """Seconds since the last activity of the API server on this resource."""
        return self._clock() - self._alive_at

    @property
    def idle_for(self) -> float:
        """Seconds since the informer itself last did anything, such as another try to reach the API server."""
        return self._clock() - max(self._alive_at, self._moved_at)

    async def run(self) -> None:
        """Follow until cancelled, whatever fails."""
        failures = 0
        while True:
            self._moved = False
            self._moved_at = self._clock()
            try:
                if self._since is None:
                    await self._list()
                await self._watch()
                reason = "ended"
            except Expired:
                # What was deleted since the last event seen is found by the difference to the next LIST.
                self._since = None
                reason = "gone"
            except (Forbidden, NotFound) as failure:
                reason = "refused"
                self._refuse(str(failure))
            except ApiError as failure:
                reason = "failed"
                _log.warning("restarting the watch of %s: %s", self._resource.plural, failure)
            self._reconnected(reason)
            # A stream that delivered something was a success, however it ended. One that only ends is a failure.
            failures = 0 if self._moved else failures + 1
            if failures >= _DOUBTED_AFTER:
                self._since = None
            await asyncio.sleep(self._backoff(failures))

    async def _list(self) -> None:
        records: list[R] = []
        version = ""
        async with aclosing(
            self._kube.list_pages(self._resource, self._namespace, keep=self._parse, selector=self._selector)
        ) as pages:
            async for page in pages:
                records += [record for record in page.items if record is not None]
                version = page.resource_version
                self._alive_at = self._clock()
        self._store.replace(records, version, self._namespace)
        self._since = version
        self.synced.set()

    async def _watch(self) -> None:
        begun = self._clock()
        async with aclosing(
            self._kube.watch(
                self._resource,
                self._namespace,
                since=self._since or "",
                seconds=self._limits.watch,
                silence=self._limits.silence,
                selector=self._selector,
                opened=self._allow,
                # Most events of objects that were just created show what the answer to their creation showed.
                shows=self._store.shows,
            )
        ) as events:
            async for event in events:
                self._take(event)
                self._moved = True
                self._alive_at = self._clock()
        if self._clock() - begun >= _SHORTEST_WATCH:
            self._moved = True
            self._alive_at = self._clock()

    def _take(self, event: WatchEvent) -> None:
        metadata = event.object.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        version = metadata.get("resourceVersion")
        # Only forward: a repeated event must not make all later ones repeat.
        if isinstance(version, str) and version_number(version) > version_number(self._since or ""):
            self._since = version
        if event.type == "BOOKMARK" or (event.type != "DELETED" and self._store.shows(metadata)):
            return
        record = self._parse(event.object)
        if record is None:
            _log.warning("ignoring an event on %s without name, namespace or uid", self._resource.plural)
        elif event.type == "DELETED":
            self._store.deleted(record)
        else:
            self._store.seen(record)

    def _refuse(self, why: str) -> None:
        # It may last for long: the same is said once.
        if why != self.refused:
            _log.warning("%s cannot be watched: %s", self._what, why)
        self.refused = why
        self._refusals += 1

    def _allow(self) -> None:
        if self.refused is not None:
            _log.info("%s can be watched now", self._what)
        self.refused = None
        self._refusals = 0

    @property
    def _what(self) -> str:
        return self._resource.plural if self._namespace is None else f"{self._resource.plural} in {self._namespace}"

    def _backoff(self, failures: int) -> float:
        if failures == 0:
            return 0.0
        most = self._limits.longest_backoff
        if self.refused is not None:
            # An API server that has just started refuses for a moment what it allows then.
            failures, most = self._refusals, self._limits.longest_refusal
        longest = min(self._limits.first_backoff * 2.0 ** min(failures - 1, 16), most)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 spreads reconnects, guards nothing
