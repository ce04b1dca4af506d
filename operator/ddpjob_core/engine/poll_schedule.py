"""Which endpoint is asked next: each job has its share, and those of no use are asked less and less often."""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from ddpjob_core.engine.fair import FairQueue
from ddpjob_core.engine.memory import JobMemory
from ddpjob_core.wire.progress import PollTarget

SLOTS: Final = 256
"""Polls at a time: one that nothing answers keeps its slot for the whole patience."""
SLOTS_OF_A_JOB: Final = SLOTS // 4
SLOTS_OF_SLOW_ENDPOINTS: Final = SLOTS * 3 // 4
"""Of those that have not answered quickly the last time, or not been asked yet: the others never wait for them."""
POLLS_PER_SECOND: Final = 500.0
"""More would keep the event loop from everything else; beyond it, jobs are asked less often, each namespace in turn."""
QUICK: Final = 0.5
"""Seconds within which a healthy endpoint answers, by far."""
_MOST_DOUBLINGS: Final = 3
_SLOW_EVERY: Final = 4
"""Of so many polls one is of a slow endpoint if any waits: it may have become quick."""
KNOCKS: Final = 64
"""Endpoints that are knocked at together: it takes some milliseconds, in which nothing else is done."""
KNOCKS_PER_SECOND: Final = 500.0
_PATIENCE_WITH_REFUSALS: Final = 0.2
"""An endpoint that has never served anything is asked again after this part of the time for which it has not."""
_LONGEST_REFUSED: Final = 600.0
"""Seconds between two polls of it. Programs that serve no progress are thousands in a fleet."""
_PARTS: Final = 12.0
"""Pauses are lengthened by at most one of so many parts, to a moment at which others end too."""


class Answer(Enum):
    """What came of a poll."""

    SERVED = auto()
    """A report."""
    WAITS = auto()
    """The page of a launcher that waits: its program has not started."""
    REFUSED = auto()
    """The connection was refused."""
    UNUSABLE = auto()
    """Something else: a program listens there, or nothing can."""
    OPEN = auto()
    """A connection was made, and nothing asked."""
    SILENT = auto()
    """Nothing came before the end of patience."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """An endpoint that is asked again and again.

    Attributes:
        job: whose it is.
        target: where it answers.
        due: when it is to be asked next.
        quick: whether it answered quickly the last time.
        served: whether it has ever served a report.
        refused: whether it has never served a report and refused the connection the last time.
        first_asked: when the first poll began, or the last one that a waiting launcher answered.
        timeouts: polls in a row that it did not answer.
        entry: number of its place in the calendar.
        begun: when the last poll began.
        in_slow_slot: whether that poll has a slot of the slow ones.
        busy: whether it waits for a slot or is being asked.
        gone: whether it is not to be asked any more.
    """

    job: "FollowedJob"
    target: PollTarget
    due: float
    quick: bool = False
    served: bool = False
    refused: bool = False
    first_asked: float | None = None
    timeouts: int = 0
    entry: int = 0
    begun: float = 0.0
    in_slow_slot: bool = False
    busy: bool = False
    gone: bool = False


@dataclass(slots=True, eq=False)
class FollowedJob:
    """A job whose endpoints are asked: `taken` of its slots are used or waited for, `parked` wait for one of them."""

    memory: JobMemory
    endpoints: dict[PollTarget, Endpoint] = field(default_factory=dict)
    taken: int = 0
    parked: deque[Endpoint] = field(default_factory=deque)
    extra_at: float | None = None


class PollSchedule:
    """Decides which endpoint is asked when. Times are monotonic seconds, passed in."""

    def __init__(self, interval: float, *, spread: Callable[[], float]) -> None:
        """Args:
        interval: seconds between two polls of an endpoint that answers.
        spread: the part of the interval after which a new job is first asked.
        """
        self._interval = interval
        self._spread = spread
        self._jobs: dict[str, FollowedJob] = {}
        self._calendar: list[tuple[float, int, Endpoint | FollowedJob]] = []
        self._order = itertools.count(1)
        self._quick: FairQueue[Endpoint] = FairQueue()
        self._slow: FairQueue[Endpoint] = FairQueue()
        self._refusing: FairQueue[Endpoint] = FairQueue()
        self._knocking = False
        self._knock_not_before = 0.0
        self._running = 0
        self._slow_running = 0
        self._taken = 0
        self._not_before = 0.0

    def __len__(self) -> int:
        return sum(len(job.endpoints) for job in self._jobs.values())

    def follow(self, memory: JobMemory, targets: tuple[PollTarget, ...], now: float) -> None:
        """Ask these targets of a job from now on, and no others of it."""
        job = self._jobs.get(memory.uid)
        if not targets:
            # A job that was forgotten must not take along the one that is followed now under its uid.
            if job is not None and job.memory is memory:
                self._leave(job)
            return
        if job is not None and job.memory is not memory:
            self._leave(job)
            job = None
        first = job is None
        if job is None:
            job = self._jobs[memory.uid] = FollowedJob(memory)
        # More ranks than before: the training seems to have stalled, and what they report is needed now.
        hurry = not first and len(targets) > len(job.endpoints)
        wanted = set(targets)
        for target in [target for target in job.endpoints if target not in wanted]:
            job.endpoints.pop(target).gone = True
        # Not all at once at the start: when the operator starts, all jobs arrive at the same time.
        due = now + self._interval * self._spread() if first else now
        for target in targets:
            known = job.endpoints.get(target)
            if known is None:
                known = job.endpoints[target] = Endpoint(job, target, due)
                self._enter(known)
            elif hurry and not known.busy and not known.timeouts:
                known.due = now
                self._enter(known)

    def freshen(self, memory: JobMemory, at: float) -> None:
        """Ask rank 0 of a job once more at this moment."""
        job = self._jobs.get(memory.uid)
        if job is not None and job.extra_at is None:
            job.extra_at = at
            heapq.heappush(self._calendar, (at, next(self._order), job))

    def take(self, now: float) -> Endpoint | None:
        """An endpoint that is to be asked now; None if none is due or no slot is free. Call `ended` afterwards."""
        self._look_at_calendar(now)
        if self._running >= SLOTS or now < self._not_before:
            return None
        endpoint = self._next()
        if endpoint is None:
            return None
        self._taken += 1
        # What could not be used within a tenth of a second is lost: no burst follows a pause.
        self._not_before = max(self._not_before, now - 0.1) + 1 / POLLS_PER_SECOND
        self._running += 1
        self._slow_running += endpoint.in_slow_slot
        endpoint.begun = now
        return endpoint

    def take_refusing(self, now: float) -> list[Endpoint]:
        """Endpoints that have only ever refused and are due: it is enough to knock. Call `knocked` afterwards."""
        self._look_at_calendar(now)
        found: list[Endpoint] = []
        if self._knocking or now < self._knock_not_before:
            return found
        while self._refusing and len(found) < KNOCKS:
            endpoint = self._refusing.take()
            if not endpoint.gone:
                endpoint.begun = now
                found.append(endpoint)
        self._knocking = bool(found)
        self._knock_not_before = now + len(found) / KNOCKS_PER_SECOND
        return found

    def wait(self, now: float) -> float | None:
        """Seconds after which there may be one to take; None if that depends on a poll's end or on a new job."""
        moments = [self._calendar[0][0]] if self._calendar else []
        if self._running < SLOTS and (self._quick or (self._slow and self._slow_running < SLOTS_OF_SLOW_ENDPOINTS)):
            moments.append(self._not_before)
        if self._refusing and not self._knocking:
            moments.append(self._knock_not_before)
        return max(0.0, min(moments) - now) if moments else None

    def ended(self, endpoint: Endpoint, now: float, answer: Answer) -> None:
        """A poll has ended."""
        self._running -= 1
        self._slow_running -= endpoint.in_slow_slot
        self._note(endpoint, now, answer)
        self._free(endpoint)
        self._go_on(endpoint, now, answer)

    def knocked(self, endpoints: Sequence[Endpoint], now: float, answers: Sequence[Answer]) -> None:
        """The endpoints of `take_refusing` have been knocked at: each refused, is open, or silent."""
        self._knocking = False
        for endpoint, answer in zip(endpoints, answers, strict=True):
            self._note(endpoint, now, answer)
            endpoint.busy = False
            self._go_on(endpoint, now, answer)

    @staticmethod
    def _note(endpoint: Endpoint, now: float, answer: Answer) -> None:
        answered = answer is not Answer.SILENT
        endpoint.quick = answered and now - endpoint.begun <= QUICK
        endpoint.timeouts = 0 if answered else endpoint.timeouts + 1
        endpoint.served = endpoint.served or answer is Answer.SERVED
        endpoint.refused = answer is Answer.REFUSED and not endpoint.served
        if endpoint.first_asked is None or answer is Answer.WAITS:
            endpoint.first_asked = endpoint.begun

    def _go_on(self, endpoint: Endpoint, now: float, answer: Answer) -> None:
        if endpoint.gone:
            return
        again = self._next_poll(endpoint, answer)
        # One more poll than usual does not put the next one off, but may have found what cannot wait until then.
        endpoint.due = again if endpoint.due <= now else min(endpoint.due, again)
        self._enter(endpoint)

    def _next_poll(self, endpoint: Endpoint, answer: Answer) -> float:
        """When an endpoint is asked again."""
        if answer is Answer.OPEN:
            return endpoint.begun
        if answer is Answer.SILENT:
            doublings = min(max(0, endpoint.timeouts - 1), _MOST_DOUBLINGS)
            return endpoint.begun + self._interval * 2.0**doublings
        # One that has served is asked as before: its process may be starting again.
        if endpoint.served or answer is Answer.WAITS:
            return endpoint.begun + self._interval
        refused_for = endpoint.begun - (endpoint.first_asked or 0.0)
        pause = max(self._interval, min(_PATIENCE_WITH_REFUSALS * refused_for, _LONGEST_REFUSED))
        step = 2.0 ** math.floor(math.log2(pause / _PARTS))
        return math.ceil((endpoint.begun + pause) / step) * step

    def _leave(self, job: FollowedJob) -> None:
        for endpoint in job.endpoints.values():
            endpoint.gone = True
        job.endpoints.clear()
        if self._jobs.get(job.memory.uid) is job:
            del self._jobs[job.memory.uid]

    def _enter(self, endpoint: Endpoint) -> None:
        endpoint.entry = next(self._order)
        heapq.heappush(self._calendar, (endpoint.due, endpoint.entry, endpoint))

    def _look_at_calendar(self, now: float) -> None:
        while self._calendar and self._calendar[0][0] <= now:
            _, entry, due = heapq.heappop(self._calendar)
            if isinstance(due, Endpoint):
                if due.entry == entry and not due.busy and not due.gone:
                    self._ask_for_slot(due)
                continue
            due.extra_at = None
            first = next((each for each in due.endpoints.values() if each.target.rank == 0), None)
            if first is not None and not first.busy and not first.timeouts:
                self._ask_for_slot(first)

    def _ask_for_slot(self, endpoint: Endpoint) -> None:
        endpoint.busy = True
        job = endpoint.job
        if endpoint.refused:
            self._refusing.add(endpoint, job.memory.key[0], job.memory.uid)
            return
        if job.taken >= SLOTS_OF_A_JOB:
            job.parked.append(endpoint)
            return
        job.taken += 1
        (self._quick if endpoint.quick else self._slow).add(endpoint, job.memory.key[0], job.memory.uid)

    def _free(self, endpoint: Endpoint) -> None:
        endpoint.busy = False
        job = endpoint.job
        job.taken -= 1
        while job.parked and job.taken < SLOTS_OF_A_JOB:
            parked = job.parked.popleft()
            parked.busy = False
            if not parked.gone:
                self._ask_for_slot(parked)

    def _next(self) -> Endpoint | None:
        while True:
            slow = bool(self._slow) and self._slow_running < SLOTS_OF_SLOW_ENDPOINTS
            if self._quick and not (slow and self._taken % _SLOW_EVERY == 0):
                slow = False
            elif not slow:
                return None
            endpoint = (self._slow if slow else self._quick).take()
            if not endpoint.gone:
                endpoint.in_slow_slot = slow
                return endpoint
            self._free(endpoint)
