"""The watch of DDPJobs, run by kopf. The only module that uses it.

Of kopf's handlers only on.event is used: it is level-triggered and writes nothing. Change handlers would write
annotations, timers and daemons would add finalizers.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from ddpjob_core.api.constants import GROUP, PLURAL, VERSION
from ddpjob_core.api.errors import ApiError
from ddpjob_core.api.resources import JOBS
from ddpjob_core.api.scope import Scope
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.connection import Connection
from ddpjob_operator.informer import WatchLimits
from ddpjob_operator.job_stream import REFUSALS, JobStream
from ddpjob_operator.kube_protocols import Kube
from ddpjob_operator.slim_kopf import kopf

_PAGE_SIZE: Final = 50
"""Jobs in a chunk of kopf's LIST: each may be as large as etcd takes, a megabyte and a half."""
_IDLE: Final = 0.1
"""Seconds for which kopf keeps a task for a job after its last event: after a LIST it has one for each."""
_RETRY_LIST: Final = 2.0

_log = logging.getLogger(__name__)


class JobFeed:
    """The jobs of one namespace, or of all, as kopf lists and watches them."""

    def __init__(self, namespace: str | None, clock: Callable[[], float]) -> None:
        """Args:
        namespace: the namespace, None for all.
        clock: monotonic seconds.
        """
        self.namespace = namespace
        self._clock = clock
        self._alive_at = self._moved_at = clock()
        self._lists = 0
        self.gap = asyncio.Event()
        """Set where kopf had to list again."""
        self.synced = asyncio.Event()
        """Set once kopf has listed the jobs and started to watch them."""
        self.refused: str | None = None
        """Why the API server does not show these jobs, None where it does."""

    @property
    def silent_for(self) -> float:
        """Seconds since the API server last answered kopf's LIST or WATCH of these jobs, or sent an event."""
        return self._clock() - self._alive_at

    @property
    def idle_for(self) -> float:
        """Seconds since kopf last did anything for these jobs, such as another try to reach the API server."""
        return self._clock() - max(self._alive_at, self._moved_at)

    def asked(self) -> None:
        """Kopf has sent a request."""
        self._moved_at = self._clock()

    def heard(self) -> None:
        """The API server has answered or sent an event."""
        self._alive_at = self._clock()

    def listed(self) -> None:
        """The API server has answered the first chunk of a LIST."""
        self.heard()
        self._lists += 1
        if self._lists > 1:
            self.gap.set()

    def opened(self) -> None:
        """The API server has begun to answer a WATCH."""
        self.heard()
        self.synced.set()
        if self.refused is not None:
            _log.info("%s can be watched now", self._what)
        self.refused = None

    def refuse(self, why: str) -> None:
        """The API server has refused a LIST or WATCH."""
        # It may last for long: the same is said once.
        if why != self.refused:
            _log.warning("%s cannot be watched: %s", self._what, why)
        self.refused = why

    @property
    def _what(self) -> str:
        return PLURAL if self.namespace is None else f"{PLURAL} in {self.namespace}"


class JobWatch:
    """Keeps the cache of jobs up to date through kopf.

    What kopf does not report is observed on its HTTP session: that the API server still answers, and that a watch was
    restarted with a LIST. Deletions between the two are not reported at all, so the cache is then compared with a LIST
    of our own. Kopf's internals could be wrapped instead, but they change without notice.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        kube: Kube,
        store: Store[JobRecord],
        scope: Scope,
        clock: Callable[[], float],
        count: Callable[[str, str, str], None],
        limits: WatchLimits | None = None,
    ) -> None:
        """Args:
        connection: the credentials that kopf logs in with.
        kube: for the comparison after a gap.
        store: the cache of jobs.
        scope: whose jobs are watched.
        clock: monotonic seconds.
        count: called with verb, resource and code of each of kopf's requests.
        limits: durations of a watch.
        """
        self._connection = connection
        self._kube = kube
        self._store = store
        self._count = count
        self._limits = limits or WatchLimits()
        self._stream = JobStream(self._refused, self._limits.longest_refusal, cached=store)
        self.feeds: Mapping[str | None, JobFeed] = {each: JobFeed(each, clock) for each in scope.watched}
        """By namespace; None is the key of the only one where all are watched at once."""

    async def run(self, *, stop: asyncio.Event, started: asyncio.Event) -> None:
        """Run kopf until `stop` is set.

        Args:
            stop: ends it.
            started: set once kopf has installed its signal handlers, which may be replaced from then on.
        """
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            # By default kopf looks up the user's name, and the host's in DNS; neither has to exist in a pod.
            identity="ddpjob-operator",  # type: ignore[arg-type]  # a str by a name that kopf does not export
            standalone=True,
            clusterwide=None in self.feeds,
            namespaces=[each for each in self.feeds if each is not None],
            stop_flag=stop,
            ready_flag=started,
        )

    async def close_gaps(self) -> None:
        """Compare the cache with a LIST whenever kopf had to list again, until cancelled."""
        async with asyncio.TaskGroup() as each:
            for feed in self.feeds.values():
                each.create_task(self._close_gaps(feed))

    async def _close_gaps(self, feed: JobFeed) -> None:
        said = ""
        while True:
            await feed.gap.wait()
            feed.gap.clear()
            try:
                uids: set[str] = set()
                version = ""
                async for page in self._kube.list_pages(JOBS, feed.namespace, keep=_uid, metadata_only=True):
                    uids.update(page.items)
                    version = page.resource_version
                # What has changed is in kopf's own LIST.
                self._store.keep_only(uids, version, feed.namespace)
            except ApiError as failure:
                if str(failure) != said:
                    said = str(failure)
                    _log.warning("cannot list jobs to find those deleted while the watch was broken: %s", failure)
                feed.gap.set()
                await asyncio.sleep(self._limits.longest_refusal if feed.refused is not None else _RETRY_LIST)
            else:
                said = ""

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=1)
        async def login(**_: object) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                server=self._connection.server,
                aiohttp_session=self._connection.open_session(
                    self._answered, self._asked, self._stream.response_class()
                ),
            )

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def seen(event: kopf.RawEvent, **_: object) -> None:
            metadata = event["object"]["metadata"]
            feed = self.feeds.get(metadata.get("namespace"), self.feeds.get(None))
            if feed is not None:
                feed.heard()
            uid = metadata.get("uid", "")
            # None where the event before it was handled after this one had been read: that took the newest record.
            record = self._stream.take(uid)
            if event["type"] == "DELETED" and uid:
                self._store.forget(metadata["namespace"], metadata["name"], uid)
            elif record is not None:
                self._store.seen(record)

        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.process.ultimate_exiting_timeout = None
        settings.watching.server_timeout = round(self._limits.watch)
        settings.watching.client_timeout = self._limits.watch + self._limits.silence
        settings.watching.inactivity_timeout = self._limits.silence
        settings.watching.connect_timeout = 5.0
        settings.watching.chunk_size = _PAGE_SIZE
        settings.networking.request_timeout = 15.0
        settings.networking.connect_timeout = 5.0
        settings.networking.error_backoffs = _Patience()
        # A worker of kopf's has nothing to finish: it only fills the cache.
        settings.queueing.exit_timeout = 0.2
        settings.queueing.idle_timeout = _IDLE
        return settings

    def _asked(self, path: str) -> None:
        feed = self._feed(path)
        # What it asks for besides, such as which resources there are, it asks before any of them.
        for each in (feed,) if feed is not None else self.feeds.values():
            each.asked()

    def _answered(self, method: str, path: str, query: str, code: int) -> None:
        feed = self._feed(path)
        if feed is None:
            self._count(method.lower(), "discovery", str(code))
            return
        watching = "watch=true" in query
        self._count("watch" if watching else "list", PLURAL, str(code))
        if code != HTTPStatus.OK:
            return
        if watching:
            feed.opened()
        elif "continue=" not in query:
            feed.listed()
        else:
            feed.heard()

    def _refused(self, path: str, code: int, why: str, *, watching: bool) -> None:
        if not watching:
            # Kopf is not shown this answer, and so reports none.
            self._count("list", PLURAL, str(code))
        feed = self._feed(path)
        if feed is not None and code in REFUSALS:
            feed.refuse(why)

    def _feed(self, path: str) -> JobFeed | None:
        """The feed that a URL path belongs to, None for one that is not about jobs."""
        *_, before, namespace, resource = ["", "", *path.split("/")]
        if resource != PLURAL:
            return None
        return self.feeds.get(namespace if before == "namespaces" else None)


def _uid(raw: Json) -> str:
    return str(raw["metadata"]["uid"])


class _Patience:
    """Endless delays between kopf's retries: a control plane that is down must not end the operator."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1.0), itertools.repeat(2.0))
