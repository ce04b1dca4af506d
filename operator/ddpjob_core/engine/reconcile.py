"""One reconcile of one job: observe, decide, write the status, act, post events. Nothing else changes the cluster."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from ddpjob_core.api.constants import API_VERSION, KIND
from ddpjob_core.api.errors import ApiError, Conflict, NotFound, NotLeading, Unavailable
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.resources import JOBS
from ddpjob_core.api.status import Condition, DDPJobStatus, Phase
from ddpjob_core.decide import Plan
from ddpjob_core.engine.actions import ActionRunner, Outcome
from ddpjob_core.engine.caches import Caches
from ddpjob_core.engine.events import EventPoster
from ddpjob_core.engine.limiter import FairLimiter
from ddpjob_core.engine.memory import JobMemory, Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.engine.protocols import Json, Leadership, Metrics, NewSshKey, ObjectApi
from ddpjob_core.engine.queue import WorkQueue
from ddpjob_core.engine.refused_status import (
    EPOCH,
    RefusedStatus,
    Written,
    as_decided,
    without_losing_the_end,
    write_accepted,
)
from ddpjob_core.engine.store import Key, version_of
from ddpjob_core.observations.attempt import current_attempt
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord, Observed, Rejection, RejectionKind
from ddpjob_core.observations.refusals import TRY_AGAIN_AFTER

Decide: TypeAlias = Callable[[Observed], Plan]

_LEFT_ALONE: Final = TRY_AGAIN_AFTER - timedelta(seconds=1)
"""How long a refused object is not asked for again: a second less, since decide counts in whole seconds."""
_FAILS_AFTER: Final = timedelta(seconds=4)
"""How long the creation of an object may fail before the status says so: a failure may pass with the next try."""
_CATCH_UP: Final = 5.0
"""Seconds after which a job is reconciled anyway although the watch has not shown its newer version."""

_log = logging.getLogger(__name__)


class Reconciler:
    """Reconciles jobs; the queue ensures that no job is reconciled by two workers at a time."""

    def __init__(
        self,
        *,
        kube: ObjectApi,
        decide: Decide,
        memories: Memories,
        caches: Caches,
        queue: WorkQueue[Key],
        poller: ProgressPoller,
        progress_writes: FairLimiter,
        events: EventPoster,
        metrics: Metrics,
        new_ssh_key: NewSshKey,
        now: Callable[[], datetime],
        leadership: Leadership,
        clock: Callable[[], float],
    ) -> None:
        """Args:
        kube: the API server.
        decide: the policies.
        memories: what this process knows of each job.
        caches: the objects that are known.
        queue: receives jobs that need another reconcile.
        poller: reads progress.
        progress_writes: spreads the writes that can wait.
        events: posts events.
        metrics: counts what happens.
        new_ssh_key: makes the keys of jobs that need ssh.
        now: this process' clock.
        leadership: stamps statuses with the term in which they are written.
        clock: monotonic seconds.
        """
        self._kube = kube
        self._clock = clock
        self._decide = decide
        self._memories = memories
        self._caches = caches
        self._queue = queue
        self._poller = poller
        self._progress_writes = progress_writes
        self._events = events
        self._metrics = metrics
        self._now = now
        self._leadership = leadership
        self._actions = ActionRunner(kube, caches, new_ssh_key)

    async def reconcile(self, key: Key) -> None:
        """Reconcile one job. It never raises: a failure puts the job back into the queue with a growing delay."""
        job = self._caches.jobs.get(*key)
        if job is None:
            self._queue.succeeded(key)
            return
        with self._metrics.reconciling():
            try:
                await self._reconcile(key, job)
            except NotLeading:
                # The next leader looks at every job.
                self._queue.retry(key)
            except ApiError as failure:
                after = failure.after if isinstance(failure, Unavailable) else None
                seconds = self._queue.retry(key, after)
                _log.warning("%s/%s: %s; retrying in %.1f s", *key, failure, seconds)
            except Exception:  # noqa: BLE001 a bug that this job meets must not stop the others
                self._metrics.reconcile_failed()
                seconds = self._queue.retry(key)
                _log.exception("%s/%s: reconcile failed unexpectedly; retrying in %.1f s", *key, seconds)
            else:
                self._queue.succeeded(key)

    async def _reconcile(self, key: Key, job: JobRecord) -> None:
        memory = self._memories.of(job.uid, key)
        job = as_decided(job, memory.refused)
        memory.enter(current_attempt(job, self._caches.pods_of(job)))
        if memory.rejections or memory.failing:
            # A later try may have succeeded and its answer been lost: then the watch shows the object.
            for name in self._caches.own(job):
                memory.rejections.pop(name, None)
                memory.failing.pop(name, None)
        plan = self._with_refused(key, self._plan(key, self._observe(job, memory)), memory)
        self._poller.follow(memory, plan.poll)
        if plan.remark is not None:
            await self._write_remark(key, job, plan, plan.remark)
            return
        decided_on, wrote = job, False
        if plan.status is not None:
            wait = 0.0 if plan.urgent else self._progress_writes.ask(memory.turn, key[0])
            if wait > 0:
                self._queue.add_after(key, wait)
                self._poller.freshen(memory, wait)
            else:
                written = await self._write_status(key, job, plan, memory)
                if written is None:
                    return
                decided_on, wrote = written, True
        outcome, news = await self._act(decided_on, plan, memory)
        if plan.status is None or wrote:
            await asyncio.gather(*(self._events.post(job, event) for event in plan.events))
        if outcome.failed:
            if news:
                # The status has to say so now: the next try may be a minute away.
                self._queue.add(key)
            raise next(iter(outcome.failed.values()))
        acted = bool(outcome.done) or news or (wrote and plan.urgent)
        self._requeue(key, plan, memory, acted=acted, more=outcome.more)

    def _plan(self, key: Key, observed: Observed) -> Plan:
        """What is decided; without what the ranks report, if a bug is met by that."""
        try:
            return self._decide(observed)
        except Exception:
            silent = replace(observed, progress=None, ranks=(), waits=())
            if silent == observed:
                raise
            plan = self._decide(silent)
            self._metrics.reconcile_failed()
            _log.exception("%s/%s: what its ranks report was left out, since it could not be decided on", *key)
            return plan

    def _requeue(self, key: Key, plan: Plan, memory: JobMemory, *, acted: bool, more: bool) -> None:
        if plan.requeue_after is not None:
            self._queue.add_after(key, plan.requeue_after.total_seconds())
        if not acted:
            memory.brake.rested()
            return
        wait = 0.0 if more else memory.brake.acted(self._clock())
        if wait > 0:
            _log.error("%s/%s does not come to rest: left alone for %.1f s", *key, wait)
            self._queue.hold(key, wait)
        # The answers are in the caches: the next step does not have to wait for the watch to show them.
        self._queue.add(key)

    def _observe(self, job: JobRecord, memory: JobMemory) -> Observed:
        now = self._now()
        memory.taken_over = memory.taken_over or now
        return Observed(
            job=job,
            now=now,
            pods=self._caches.pods_of(job),
            vanished=memory.vanished.pods,
            service=self._caches.service(job),
            network_policy=self._caches.network_policy(job),
            foreign=self._caches.foreign(job),
            rejections=tuple(rejection for rejection, _ in memory.rejections.values()),
            progress=memory.polled.report,
            ranks=tuple(memory.polled.ranks.values()),
            unanswered=frozenset(memory.polled.unanswered),
            waits=tuple(memory.polled.waits.values()),
            known=dict(memory.known),
            port_rivals=self._caches.port_rivals(job),
            last_status_write=memory.last_status_write,
            status_refused=memory.refused.message if memory.refused is not None else "",
            taken_over=memory.taken_over,
            inherited=memory.inherited,
            seed=memory.seed,
            found_claim=memory.found_claim,
        )

    async def _write_status(self, key: Key, job: JobRecord, plan: Plan, memory: JobMemory) -> JobRecord | None:
        """The job with its new status; None if it has changed: it is reconciled again when its new version is known."""
        assert plan.status is not None  # noqa: S101 the caller has looked
        epoch = self._leadership.epoch_over(job.status.leader_epoch if job.status is not None else None)
        status = plan.status.model_copy(update={"leader_epoch": epoch})
        try:
            written = await write_accepted(status, partial(self._put_status, job))
        except NotFound:
            self._caches.jobs.forget(job.namespace, job.name, job.uid)
            return None
        except Conflict:
            self._catch_up(key, job)
            return None
        self._metrics.status_written(job.status, plan.status)
        memory.last_status_write = self._now()
        memory.inherited = False
        self._progress_writes.leave(memory.turn)
        record = job_record(written.answer, job)
        if record is not None:
            self._caches.jobs.remember(record)
        self._note_refusal(key, memory, status, written, record)
        return record or job

    async def _write_remark(self, key: Key, job: JobRecord, plan: Plan, remark: Condition) -> None:
        """Say something in the status of a job that is left alone: what this version does not know stays in it."""
        status = {"phase": Phase.PENDING.value, **(job.raw_status or {})}
        found = status.get("conditions")
        conditions = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        others = [each for each in conditions if each.get("type") != remark.type]
        epoch = self._leadership.epoch_over(job.status.leader_epoch if job.status is not None else None)
        status |= {"conditions": [*others, remark.to_wire()], **({} if epoch is None else {EPOCH: epoch})}
        try:
            answer = await self._put_status(job, status)
        except NotFound:
            self._caches.jobs.forget(job.namespace, job.name, job.uid)
            return
        except Conflict:
            self._catch_up(key, job)
            return
        record = job_record(answer, job)
        if record is not None:
            self._caches.jobs.remember(record)
        _log.warning("%s/%s: %s", *key, remark.message)
        await asyncio.gather(*(self._events.post(job, event) for event in plan.events))

    def _catch_up(self, key: Key, job: JobRecord) -> None:
        """The job has changed since it was decided on: decide again when its newer version is known."""
        self._metrics.status_conflict()
        cached = self._caches.jobs.get(*key)
        if cached is None or version_of(cached) > version_of(job):
            self._queue.add(key)
        else:
            # The watch will show the newer version, which starts the next reconcile.
            self._queue.add_after(key, _CATCH_UP)

    async def _put_status(self, job: JobRecord, status: Json) -> Json:
        identity = {"namespace": job.namespace, "name": job.name, "uid": job.uid}
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {**identity, "resourceVersion": job.resource_version},
            "status": status,
        }
        return await self._kube.replace_status(JOBS, manifest)

    def _note_refusal(
        self, key: Key, memory: JobMemory, status: DDPJobStatus, written: Written, record: JobRecord | None
    ) -> None:
        refused, known = written.problem, memory.refused.message if memory.refused is not None else ""
        if refused != known:
            # The status has to say so.
            self._queue.add(key)
        if not refused:
            memory.refused = None
            return
        stored = record or self._caches.jobs.get(*key)
        was_stored = stored.status if stored is not None else None
        memory.refused = RefusedStatus(status, was_stored, refused, self._now(), written.again_after)
        self._metrics.status_refused()
        if refused != known:
            _log.warning("%s/%s: %s", *key, refused)

    def _with_refused(self, key: Key, plan: Plan, memory: JobMemory) -> Plan:
        """The plan, with the status that was refused to be sent again from time to time."""
        if memory.refused is None:
            return plan
        left = memory.refused.at + memory.refused.again_after - self._now()
        self._queue.add_after(key, max(left, timedelta(seconds=1)).total_seconds())
        again = plan.status is None and left <= timedelta()
        return replace(plan, status=memory.refused.decided, urgent=True) if again else plan

    async def _act(self, job: JobRecord, plan: Plan, memory: JobMemory) -> tuple[Outcome, bool]:
        """The outcome of the actions, and whether there is a refusal that the status does not report yet."""
        begun = self._now()

        def left_alone(name: ObjectName) -> bool:
            refused = memory.rejections.get(name)
            # What fails is tried again as its queue says: it may work again at any moment.
            return refused is not None and name not in memory.failing and begun - refused[1] < _LEFT_ALONE

        actions = without_losing_the_end(plan.actions, memory.refused, self._caches.pods_of(job))
        outcome = await self._actions.run(job, memory.backlog.with_rest(actions), skip=left_alone)
        memory.backlog.carried_out(outcome.done, outcome.failed)
        for name in outcome.done:
            memory.rejections.pop(name, None)
            memory.failing.pop(name, None)
        memory.found_claim = outcome.found_claim or memory.found_claim
        memory.known |= dict.fromkeys(outcome.known, self._now())
        for rejection in outcome.rejected:
            memory.failing.pop(rejection.object, None)
        news = False
        for rejection in (*outcome.rejected, *_lasting(outcome, memory, self._now())):
            known = memory.rejections.get(rejection.object)
            if known is None or known[0] != rejection:
                news = True
                _log.warning("%s/%s: %s was refused: %s", job.namespace, job.name, rejection.object, rejection.message)
            memory.rejections[rejection.object] = (rejection, self._now())
        return outcome, news


def _lasting(outcome: Outcome, memory: JobMemory, now: datetime) -> Iterator[Rejection]:
    """What has failed for so long that it counts as refused.

    Another wording of the same failure changes nothing.
    """
    for name, failure in outcome.not_created.items():
        told = memory.rejections.get(name)
        if told is not None and told[0].kind is RejectionKind.UNAVAILABLE and now - told[1] < TRY_AGAIN_AFTER:
            continue
        if now - memory.failing.setdefault(name, now) >= _FAILS_AFTER:
            yield Rejection(RejectionKind.UNAVAILABLE, name, name.without_end(str(failure)))
