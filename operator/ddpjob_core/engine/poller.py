"""Reads the progress of running jobs from their pods, alongside the reconciles and without delaying them."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from ddpjob_core.engine.memory import JobMemory, Memories
from ddpjob_core.engine.poll_schedule import Answer, Endpoint, PollSchedule
from ddpjob_core.engine.protocols import Door, OpenTransport, Transport
from ddpjob_core.engine.store import Key
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.wire.fields import LARGEST_MESSAGE, Fields, json_object
from ddpjob_core.wire.progress import PollTarget, ProgressReport, parse_progress, parse_slowest
from ddpjob_core.wire.rank_report import RankReport, RendezvousWait, parse_rank_report, parse_wait

_FRESH: Final = 0.25
"""Seconds before a write at which its progress is read: a poll takes a fraction of that."""

_ANSWERS: Final[Mapping[Door, Answer]] = {
    Door.OPEN: Answer.OPEN,
    Door.CLOSED: Answer.REFUSED,
    Door.SILENT: Answer.SILENT,
}

Locate: TypeAlias = Callable[[int, str, int], tuple[str, int]]
"""Address and port at which a rank is reached, by its node's ordinal and by the address and port in its pod."""


def own_address(_: int, address: str, port: int) -> tuple[str, int]:
    """Those in the pod: each pod has its own address."""
    return address, port


class _BadAnswer(Exception):  # noqa: N818 what the endpoint did, not what went wrong here
    """An endpoint answered something other than progress; the text is one word for the metrics."""


class ProgressPoller:
    """GETs /progress of each job's targets about every `interval` seconds, spread over it.

    An endpoint is a user's program: it may be slow, redirect, or answer too much or nonsense. Only the progress of its
    own job suffers (see `PollSchedule`).
    """

    def __init__(
        self,
        *,
        memories: Memories,
        changed: Callable[[Key], None],
        count: Callable[[str], None],
        drop: Callable[[str], None],
        open_transport: OpenTransport,
        now: Callable[[], datetime],
        interval: float = 2.0,
        patience: float = 2.0,
        locate: Locate = own_address,
    ) -> None:
        """Args:
        memories: where the targets and the answers of each job are kept.
        changed: called with a job when one of its displayed values has changed.
        count: called with how each poll ended, in one word.
        drop: called with the name of each field of an answer whose value could not be used.
        open_transport: opens the transport of the requests.
        now: this process' clock.
        interval: seconds between two polls of a target.
        patience: seconds that an endpoint may take.
        locate: where a target is reached.
        """
        self._memories = memories
        self._changed = changed
        self._count = count
        self._drop = drop
        self._now = now
        self._open_transport = open_transport
        self._patience = patience
        self._locate = locate
        self._schedule = PollSchedule(interval, spread=random.random)
        self._wake = asyncio.Event()

    def follow(self, job: JobMemory, targets: tuple[PollTarget, ...]) -> None:
        """Poll these targets for a job from now on; none stops it and keeps what was read last."""
        job.polled.targets = targets
        job.polled.unanswered.intersection_update(targets)
        self._schedule.follow(job, targets, asyncio.get_running_loop().time())
        self._wake.set()

    def freshen(self, job: JobMemory, seconds: float) -> None:
        """Read a job's progress once more shortly before it is to be written in so many seconds.

        Where many jobs wait for their turn to be written, what was read at the last regular poll would add its own age.
        """
        if job.polled.targets and seconds > _FRESH:
            self._schedule.freshen(job, asyncio.get_running_loop().time() + seconds - _FRESH)
            self._wake.set()

    def ended(self, job: JobMemory, pod: PodRecord) -> None:
        """Keep what the first node reported at its end: a pod being deleted may be gone at the next reconcile."""
        if pod.ordinal != 0 or pod.attempt is None or not isinstance(pod.trainer, Terminated):
            return
        report, known = pod.trainer.report, job.polled.report
        if report is None or report.progress is None or (known is not None and known.attempt > pod.attempt):
            return
        progress = report.progress.model_copy(update={"observed_time": self._now()})
        job.polled.report = ProgressReport(pod.attempt, progress, report.loss_text)

    async def run(self) -> None:
        """Poll until cancelled."""
        loop = asyncio.get_running_loop()
        async with self._open_transport() as transport, asyncio.TaskGroup() as polls:
            while True:
                self._wake.clear()
                endpoint = self._schedule.take(loop.time())
                if endpoint is not None:
                    polls.create_task(self._ask(transport, endpoint))
                    continue
                refusing = self._schedule.take_refusing(loop.time())
                if refusing:
                    polls.create_task(self._knock(transport, refusing))
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._schedule.wait(loop.time())):
                        await self._wake.wait()

    async def _ask(self, transport: Transport, endpoint: Endpoint) -> None:
        answer = Answer.SERVED
        job = endpoint.job.memory
        try:
            if self._memories.get(job.uid) is job:
                answer = await self._poll(transport, job.uid, endpoint.target)
            else:
                self._schedule.follow(job, (), asyncio.get_running_loop().time())
        finally:
            self._schedule.ended(endpoint, asyncio.get_running_loop().time(), answer)
            self._wake.set()

    async def _knock(self, transport: Transport, endpoints: Sequence[Endpoint]) -> None:
        """Whether something listens now where nothing ever has: a task for many costs a tenth of one for each."""
        places = [self._locate(each.target.ordinal, each.target.address, each.target.port) for each in endpoints]
        answers = [Answer.SILENT] * len(endpoints)
        try:
            answers = [_ANSWERS[door] for door in await transport.knock(places)]
            for endpoint, answer in zip(endpoints, answers, strict=True):
                job, target = endpoint.job.memory, endpoint.target
                if self._memories.get(job.uid) is not job:
                    self._schedule.follow(job, (), asyncio.get_running_loop().time())
                elif answer is Answer.REFUSED:
                    self._fail(job.uid, target, "unreachable")
                    self._end_wait(job.uid, target)
                elif answer is Answer.SILENT:
                    self._fail(job.uid, target, "timeout")
        finally:
            self._schedule.knocked(endpoints, asyncio.get_running_loop().time(), answers)
            self._wake.set()

    async def _poll(self, transport: Transport, uid: str, target: PollTarget) -> Answer:
        """Ask an endpoint."""
        try:
            async with asyncio.timeout(self._patience):
                raw = await _fetch(transport, *self._locate(target.ordinal, target.address, target.port))
            fields, answered = Fields(raw), self._now()
            wait = parse_wait(fields, target, answered)
            rank = parse_rank_report(fields, target, answered)
            progress, loss = parse_progress(fields, answered)
            slowest = parse_slowest(fields) if target.rank == 0 else None
        except TimeoutError:
            self._fail(uid, target, "timeout")
            return Answer.SILENT
        except OSError as error:
            # A refused connection is ordinary: the pod runs, but its program has not opened the endpoint yet.
            self._fail(uid, target, "unreachable")
            self._end_wait(uid, target)
            if isinstance(error, ConnectionRefusedError):
                return Answer.REFUSED
        except _BadAnswer as answer:
            self._fail(uid, target, str(answer))
        except ValueError:
            self._fail(uid, target, "invalid")
        else:
            self._count("ok")
            for name in fields.dropped:
                self._drop(name)
            if wait is not None:
                self._keep_wait(uid, target, wait)
                return Answer.WAITS
            self._end_wait(uid, target)
            self._keep(uid, target, rank, ProgressReport(target.attempt, progress, loss, slowest))
            return Answer.SERVED
        return Answer.UNUSABLE

    def _asked(self, uid: str, target: PollTarget) -> JobMemory | None:
        """The job; None if it moved on to another attempt or was deleted while its old pod was being polled."""
        job = self._memories.get(uid)
        return job if job is not None and target in job.polled.targets else None

    def _fail(self, uid: str, target: PollTarget, outcome: str) -> None:
        self._count(outcome)
        job = self._asked(uid, target)
        if job is not None:
            job.polled.unanswered.add(target)

    def _keep_wait(self, uid: str, target: PollTarget, wait: RendezvousWait) -> None:
        job = self._asked(uid, target)
        if job is None:
            return
        before = job.polled.waits.get(wait.ordinal)
        job.polled.waits[wait.ordinal] = wait
        if before is None or replace(before, answered=wait.answered) != wait:
            self._changed(job.key)

    def _end_wait(self, uid: str, target: PollTarget) -> None:
        job = self._memories.get(uid)
        known = job.polled.waits.get(target.ordinal) if job is not None else None
        if job is not None and known is not None and known.attempt <= target.attempt:
            del job.polled.waits[target.ordinal]
            if job.polled.targets:
                self._changed(job.key)

    def _keep(self, uid: str, target: PollTarget, rank: RankReport, report: ProgressReport) -> None:
        job = self._asked(uid, target)
        if job is None:
            return
        job.polled.unanswered.discard(target)
        ranks = job.polled.ranks
        for number in [number for number, known in ranks.items() if known.attempt != target.attempt]:
            del ranks[number]
        restarts = ranks[target.rank].process_restarts if target.rank in ranks else 0
        ranks[target.rank] = rank
        before = job.polled.report
        if target.rank == 0:
            job.polled.report = report
            if before is None or _shown(before) != _shown(report) or restarts != rank.process_restarts:
                self._changed(job.key)


def _shown(report: ProgressReport) -> ProgressReport:
    return replace(report, progress=report.progress.model_copy(update={"observed_time": None}))


async def _fetch(transport: Transport, address: str, port: int) -> dict[str, Any]:
    answer = await transport.get(address, port, "/progress", limit=LARGEST_MESSAGE)
    if answer.status != HTTPStatus.OK:
        raise _BadAnswer("status")
    if len(answer.body) > LARGEST_MESSAGE:
        raise _BadAnswer("huge")
    raw = json_object(answer.body)
    if raw is None:
        raise _BadAnswer("invalid")
    return raw
