"""The part of an operator that does not depend on where its objects are kept: caches, queue, progress and reconciles.

The source of the objects (watches of a cluster, or processes of this machine) puts them into the caches; each change
there puts the job into the queue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Final

from ddpjob_core.api.network_policy import Isolation
from ddpjob_core.api.schemas import spec_schema, status_schema
from ddpjob_core.children.launcher_config import pack_all
from ddpjob_core.decide import decide
from ddpjob_core.engine.caches import Caches, Child, groups_of
from ddpjob_core.engine.events import EventPoster
from ddpjob_core.engine.limiter import FairLimiter
from ddpjob_core.engine.memory import Memories, Polled
from ddpjob_core.engine.poller import Locate, ProgressPoller, own_address
from ddpjob_core.engine.protocols import Alone, Leadership, Metrics, NewSshKey, ObjectApi, OpenTransport
from ddpjob_core.engine.queue import CallLater, WorkQueue
from ddpjob_core.engine.reconcile import Reconciler
from ddpjob_core.engine.resting import JobStore, has_status
from ddpjob_core.engine.store import Key, Store
from ddpjob_core.observations.advice import IN_A_CLUSTER, Advice
from ddpjob_core.observations.observed import JobRecord, PodRecord, Terminated
from ddpjob_core.observations.sightings import sighted

_GATHER_SECONDS_PER_POD: Final = 0.0004
_LONGEST_GATHER_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds between two reads of progress, and progress writes per second."""

    poll_interval: float = 2.0
    progress_writes: float = 50.0


class Controller:
    """Reconciles a job whenever one of its objects changes in the caches."""

    def __init__(
        self,
        kube: ObjectApi,
        *,
        metrics: Metrics,
        open_transport: OpenTransport,
        new_ssh_key: NewSshKey,
        now: Callable[[], datetime],
        call_later: CallLater,
        instance: str,
        rates: Rates,
        locate: Locate = own_address,
        advice: Advice = IN_A_CLUSTER,
        ttl_seconds_after_finished: int | None = None,
        isolation: Isolation | None = None,
        leadership: Leadership | None = None,
        is_listed: Callable[[str], bool] = lambda _: True,
        new_seed: Callable[[], str] = lambda: "",
    ) -> None:
        """Args:
        kube: creates and deletes objects and writes status.
        metrics: counts what happens.
        open_transport: opens the transport that progress is read by.
        new_ssh_key: makes the keys of jobs that need ssh.
        now: this process' clock, which never jumps.
        call_later: of the event loop.
        instance: who posts events, such as the operator's pod.
        rates: how often progress is read and written.
        locate: where a rank is reached.
        advice: what messages say about where jobs run.
        ttl_seconds_after_finished: how long finished jobs are kept that do not say so themselves, None for ever.
        isolation: who may connect to pods, None to make no NetworkPolicies.
        leadership: who else may write; None if nobody does.
        is_listed: whether the caches have all of a namespace. Its jobs are left alone until `look_at` after that.
        new_seed: a text that nobody can guess, for names that nobody else may have taken; "" where nobody can.
        """
        self._metrics = metrics
        self._is_listed = is_listed
        self.queue: WorkQueue[Key] = WorkQueue(clock=monotonic, call_later=call_later, group=lambda key: key[0])
        self.caches = Caches(
            jobs=JobStore(listener=self._job_changed),
            pods=Store(
                groups=groups_of,
                listener=self._child_changed,
                stamp=lambda before, after: sighted(before, after, now()),
            ),
            services=Store(groups=groups_of, listener=self._child_changed),
            network_policies=Store(groups=groups_of, listener=self._child_changed),
        )
        self.memories = memories = Memories(new_seed)
        self.poller = ProgressPoller(
            memories=memories,
            changed=self.queue.add,
            count=metrics.polled,
            drop=partial(metrics.dropped, "progress"),
            open_transport=open_transport,
            now=now,
            interval=rates.poll_interval,
            locate=locate,
        )
        self._reconciler = Reconciler(
            kube=kube,
            memories=memories,
            decide=partial(
                decide, advice=advice, ttl_seconds_after_finished=ttl_seconds_after_finished, isolation=isolation
            ),
            caches=self.caches,
            queue=self.queue,
            poller=self.poller,
            progress_writes=FairLimiter(rates.progress_writes, clock=monotonic),
            events=EventPoster(kube, now=now, instance=instance),
            metrics=metrics,
            new_ssh_key=new_ssh_key,
            now=now,
            leadership=leadership or Alone(),
            clock=monotonic,
        )

    @staticmethod
    def prepare() -> None:
        """Do once what the first jobs would otherwise wait for; takes a fifth of a second."""
        pack_all()
        spec_schema()
        status_schema()

    async def work(self) -> None:
        """Reconcile one job after another until cancelled; several of these may run."""
        await self.queue.work(self._reconcile)

    def take_over(self) -> None:
        """Begin to reconcile: every job that is known is looked at, since another process may have written to it."""
        self.memories.take_over()
        self.queue.open()
        self.look_at(None)

    def look_at(self, namespace: str | None) -> None:
        """Every job of a namespace is looked at, or of all where there is none given."""
        for job in self.caches.jobs:
            if namespace is None or job.namespace == namespace:
                self.queue.add((job.namespace, job.name))

    async def _reconcile(self, key: Key) -> None:
        # A job must not be judged by pods that merely have not been listed yet.
        if self._is_listed(key[0]):
            await self._reconciler.reconcile(key)

    def stand_by(self) -> None:
        """Reconcile and poll nothing until `take_over`; the caches stay up to date. The workers are the caller's."""
        self.queue.close()
        for memory in self.memories:
            self.poller.follow(memory, ())
            # The process that leads meanwhile reads more, and writes it: what was read before is not the newest again.
            memory.polled = Polled()

    def _job_changed(self, before: JobRecord | None, after: JobRecord | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self.memories.forget(before.uid)
        record = after or before
        if record is None:
            return
        key = (record.namespace, record.name)
        if after is not None:
            memory = self.memories.of(after.uid, key)
            if before is None and has_status(after):
                memory.inherited = True
            if before is not None and before.generation != after.generation:
                # What a user asks for is looked at, however often the job has acted lately.
                self.queue.release(key)
        self.queue.add(key)

    def _child_changed(self, before: Child | None, after: Child | None) -> None:
        if isinstance(after, PodRecord):
            self._count_dropped(before, after)
        for record in (before, after):
            if record is None:
                continue
            owner = self.memories.get(record.owner_uid)
            # An object of another namespace can name any uid as its controller's.
            job = owner if owner is not None and owner.key[0] == record.namespace else None
            if job is not None:
                if isinstance(record, PodRecord):
                    self.poller.ended(job, record)
                    job.vanished.saw(record, gone=after is None)
                # A reconcile costs in proportion to the pods, and so does the burst of events when all of them change.
                pods = self.caches.count_pods(record.namespace, job.uid)
                self.queue.add_after(job.key, min(pods * _GATHER_SECONDS_PER_POD, _LONGEST_GATHER_SECONDS))
            named = (record.namespace, record.job or "")
            if record.job and (job is None or named != job.key):
                # A job whose names are taken by another job's children waits for them to be deleted.
                self.queue.add(named)

    def _count_dropped(self, before: Child | None, pod: PodRecord) -> None:
        known = isinstance(before, PodRecord) and before.uid == pod.uid and isinstance(before.trainer, Terminated)
        if isinstance(pod.trainer, Terminated) and pod.trainer.report is not None and not known:
            for name in pod.trainer.report.dropped:
                self._metrics.dropped("termination", name)
