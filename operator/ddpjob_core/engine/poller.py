"""Reads the progress of running jobs from their first pods, beside the reconciles and never in their way."""

import asyncio
import heapq
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from ddpjob_core.engine.protocols import OpenTransport, Transport
from ddpjob_core.engine.store import Key
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.wire.progress import PollTarget, ProgressReport, parse_progress
from ddpjob_core.wire.rank_report import RankReport, RendezvousWait, parse_rank_report, parse_wait
from ddpjob_core.wire.report import parse_report

_LONGEST_ANSWER: Final = 64 * 1024

_FRESH: Final = 0.25
"""Seconds before a write at which its progress is read: a poll takes a fraction of that."""

_log = logging.getLogger(__name__)


Locate: TypeAlias = Callable[[PollTarget], tuple[str, int]]
"""Address and port at which a target is reached."""


def own_address(target: PollTarget) -> tuple[str, int]:
    """The target's own: a pod has an address of its own."""
    return target.address, target.port


@dataclass(frozen=True, slots=True)
class _Job:
    key: Key
    targets: tuple[PollTarget, ...]


class _BadAnswer(Exception):  # noqa: N818 what the endpoint did, not what went wrong here
    """An endpoint answered something that is no progress; the text is one word for the metrics."""


class ProgressPoller:
    """GETs /progress of each job's targets about every `interval` seconds, spread over it.

    An endpoint is somebody's program: it may be slow, huge, redirect or answer nonsense, and only the progress of its
    own job stops.
    """

    def __init__(
        self,
        *,
        changed: Callable[[Key], None],
        count: Callable[[str], None],
        open_transport: OpenTransport,
        now: Callable[[], datetime],
        interval: float = 2.0,
        patience: float = 2.0,
        concurrency: int = 64,
        locate: Locate = own_address,
    ) -> None:
        """Args:
        changed: told of a job of which a shown value changed.
        count: told how each poll ended, in one word.
        open_transport: opens what requests are sent by.
        now: wall clock.
        interval: seconds between two polls of a target.
        patience: seconds that an endpoint may take.
        concurrency: most polls at once.
        locate: where a target is reached.
        """
        self._changed = changed
        self._count = count
        self._now = now
        self._interval = interval
        self._open_transport = open_transport
        self._patience = patience
        self._concurrency = concurrency
        self._locate = locate
        self._jobs: dict[str, _Job] = {}
        self._reports: dict[str, ProgressReport] = {}
        self._ranks: dict[str, dict[int, RankReport]] = {}
        self._waits: dict[str, dict[int, RendezvousWait]] = {}
        self._due: list[tuple[float, str]] = []
        self._scheduled: set[str] = set()
        self._fresh: dict[str, float] = {}
        self._added = asyncio.Event()

    def follow(self, uid: str, key: Key, targets: tuple[PollTarget, ...]) -> None:
        """Poll these targets for the job of this uid from now on; none stops it and keeps what was read last."""
        if not targets:
            self._jobs.pop(uid, None)
            return
        known = self._jobs.get(uid)
        loop = asyncio.get_running_loop()
        if uid not in self._scheduled:
            # Not at once: after a start of the operator all jobs come together.
            self._scheduled.add(uid)
            self._schedule(uid, loop.time() + random.uniform(0, self._interval))  # noqa: S311 spreads polls
        elif known is not None and len(targets) > len(known.targets):
            # The training seems to stand still: what the other ranks say is wanted now.
            self._due = [(due, other) for due, other in self._due if other != uid]
            self._fresh.pop(uid, None)
            heapq.heapify(self._due)
            self._schedule(uid, loop.time())
        self._jobs[uid] = _Job(key, targets)

    def freshen(self, uid: str, seconds: float) -> None:
        """Read a job's progress once more shortly before so many seconds have passed, when it is to be written.

        Where many jobs wait for their turn to be written, what was read at the last regular poll would add its own age.
        """
        if uid not in self._jobs or uid in self._fresh or seconds <= _FRESH:
            return
        self._fresh[uid] = asyncio.get_running_loop().time() + seconds - _FRESH
        self._schedule(uid, self._fresh[uid])

    def _schedule(self, uid: str, due: float) -> None:
        heapq.heappush(self._due, (due, uid))
        self._added.set()

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._jobs.pop(uid, None)
        self._reports.pop(uid, None)
        self._ranks.pop(uid, None)
        self._waits.pop(uid, None)

    def ended(self, pod: PodRecord) -> None:
        """Keep what the first node reported at its end: a pod that is being deleted may be gone at the next look."""
        if pod.ordinal != 0 or pod.owner_uid is None or pod.attempt is None or not isinstance(pod.trainer, Terminated):
            return
        report, known = parse_report(pod.trainer.message), self._reports.get(pod.owner_uid)
        if report is None or report.progress is None or (known is not None and known.attempt > pod.attempt):
            return
        progress, loss = parse_progress(report.progress, self._now())
        self._reports[pod.owner_uid] = ProgressReport(pod.attempt, progress, loss)

    def ranks(self, uid: str) -> tuple[RankReport, ...]:
        """What each rank of the job said last, of whichever attempt."""
        return tuple(self._ranks.get(uid, {}).values())

    def waits(self, uid: str) -> tuple[RendezvousWait, ...]:
        """What nodes of the job said last that wait for node 0, of whichever attempt."""
        return tuple(self._waits.get(uid, {}).values())

    def report(self, uid: str) -> ProgressReport | None:
        """What was read last for the job, of whichever attempt."""
        return self._reports.get(uid)

    @property
    def followed(self) -> int:
        """Targets that are polled."""
        return len(self._jobs)

    async def run(self) -> None:
        """Poll until cancelled."""
        slots = asyncio.Semaphore(self._concurrency)
        loop = asyncio.get_running_loop()
        async with self._open_transport() as transport, asyncio.TaskGroup() as polls:
            while True:
                await self._sleep_until_due()
                due, uid = heapq.heappop(self._due)
                once = self._fresh.get(uid) == due
                if once:
                    del self._fresh[uid]
                if uid not in self._jobs:
                    if not once:
                        self._scheduled.discard(uid)
                    continue
                for target in self._jobs[uid].targets:
                    await slots.acquire()
                    poll = polls.create_task(self._poll(transport, uid, target))
                    poll.add_done_callback(lambda _: slots.release())
                if not once:
                    heapq.heappush(self._due, (loop.time() + self._interval, uid))

    async def _sleep_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._added.clear()
            wait = self._due[0][0] - loop.time() if self._due else None
            if wait is not None and wait <= 0:
                return
            try:
                async with asyncio.timeout(wait):
                    await self._added.wait()
            except TimeoutError:
                return

    async def _poll(self, transport: Transport, uid: str, target: PollTarget) -> None:
        try:
            async with asyncio.timeout(self._patience):
                raw = await _fetch(transport, *self._locate(target))
            answered = self._now()
            wait = parse_wait(raw, target, answered)
            rank = parse_rank_report(raw, target, answered)
            progress, loss = parse_progress(raw, answered)
        except TimeoutError:
            self._count("timeout")
        except OSError:
            # Refused is ordinary: the pod runs, the program has not got to its endpoint yet.
            self._count("unreachable")
            self._end_wait(uid, target)
        except _BadAnswer as answer:
            self._count(str(answer))
        except (ValueError, OverflowError, RecursionError):
            self._count("invalid")
        else:
            self._count("ok")
            if wait is not None:
                self._keep_wait(uid, target, wait)
                return
            self._end_wait(uid, target)
            self._keep(uid, target, rank, ProgressReport(target.attempt, progress, loss))

    def _keep_wait(self, uid: str, target: PollTarget, wait: RendezvousWait) -> None:
        job = self._jobs.get(uid)
        if job is None or target not in job.targets:
            return
        waits = self._waits.setdefault(uid, {})
        before = waits.get(wait.ordinal)
        waits[wait.ordinal] = wait
        if before is None or replace(before, answered=wait.answered) != wait:
            self._changed(job.key)

    def _end_wait(self, uid: str, target: PollTarget) -> None:
        job, known = self._jobs.get(uid), self._waits.get(uid, {}).get(target.ordinal)
        if known is not None and known.attempt <= target.attempt:
            del self._waits[uid][target.ordinal]
            if job is not None:
                self._changed(job.key)

    def _keep(self, uid: str, target: PollTarget, rank: RankReport, report: ProgressReport) -> None:
        job = self._jobs.get(uid)
        if job is None or target not in job.targets:
            # The job went on to another attempt, or is gone, while its old pod was asked.
            return
        ranks = self._ranks.setdefault(uid, {})
        for number in [number for number, known in ranks.items() if known.attempt != target.attempt]:
            del ranks[number]
        restarts = ranks[target.rank].process_restarts if target.rank in ranks else 0
        ranks[target.rank] = rank
        before = self._reports.get(uid)
        if target.rank == 0:
            self._reports[uid] = report
            if before is None or _shown(before) != _shown(report) or restarts != rank.process_restarts:
                self._changed(job.key)


def _shown(report: ProgressReport) -> ProgressReport:
    return replace(report, progress=report.progress.model_copy(update={"observed_time": None}))


async def _fetch(transport: Transport, address: str, port: int) -> dict[str, Any]:
    answer = await transport.get(address, port, "/progress", limit=_LONGEST_ANSWER)
    if answer.status != HTTPStatus.OK:
        raise _BadAnswer("status")
    if len(answer.body) > _LONGEST_ANSWER:
        raise _BadAnswer("huge")
    raw = json.loads(answer.body)
    if not isinstance(raw, dict):
        raise _BadAnswer("invalid")
    return raw
