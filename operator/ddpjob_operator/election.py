"""Which of several operators of the same jobs leads, by a Lease that only one of them holds.

No process compares another one's clock with its own. A candidate takes the Lease once it has seen no change of it for
the whole duration, by its own clock. The holder stops a good while before: that long after it began the last renewal
that succeeded. The Lease itself changes by compare-and-swap on its resourceVersion, so two candidates cannot both
take it.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

from ddpjob_core.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, NotLeading
from ddpjob_core.api.resources import LEASES
from ddpjob_core.api.scope import Scope
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.store import Store
from ddpjob_operator.fence import Fence
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.lease import (
    LARGEST_EPOCH,
    LEASE_SELECTOR,
    LONGEST_DURATION,
    LeaseRecord,
    lease_record,
    new_lease,
    released,
    renewed,
    taken,
)

_LARGEST_STEP: Final = 1_000_000
"""More terms than an operator ever sees: a status that claims so many more than the Lease was not written by one."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds.

    Attributes:
        duration: how long the Lease must not have changed before another process takes it.
        deadline: how long after the start of its last successful renewal the holder leads.
        renewal: between two renewals.
        request: how long one request for the Lease may take.
        retry: between two tries to take or renew it.
        drain: how long a stop waits for writes that are under way.
    """

    duration: float = 10.0
    deadline: float = 7.0
    renewal: float = 2.0
    request: float = 2.5
    retry: float = 0.5
    drain: float = 1.0

    @classmethod
    def of(cls, duration: float) -> Self:
        """Those that fit a duration: three renewals fall into it, and the holder stops long before it is over."""
        whole = min(max(round(duration), 1), LONGEST_DURATION)
        return cls(duration=whole, deadline=0.7 * whole, renewal=0.2 * whole, request=0.25 * whole)


class Leader(Protocol):
    """What follows the terms of this process. Both calls must return immediately."""

    def begin(self) -> None:
        """It leads from now on."""

    def end(self) -> None:
        """It leads no longer. No write can be sent any more."""


class Election:
    """Takes the Lease, keeps it for as long as possible, and opens the fence meanwhile."""

    def __init__(
        self,
        kube: KubeClient,
        *,
        place: str,
        scope: Scope,
        identity: str,
        fence: Fence,
        clock: Callable[[], float],
        times: Times | None = None,
    ) -> None:
        """Args:
        kube: a client of its own, whose requests wait for no others.
        place: namespace of the Leases of all operators of this cluster.
        scope: whose jobs are led.
        identity: of this process; one that is started again may have it only if the former one has surely ended.
        fence: is opened while this process leads.
        clock: seconds, which also pass while the machine sleeps.
        times: durations.
        """
        self._kube = kube
        self._place = place
        self._scope = scope
        self._name = scope.lease
        self._identity = identity
        self._fence = fence
        self._clock = clock
        self._times = times or Times()
        self._leader: Leader | None = None
        self._held: LeaseRecord | None = None
        self._floor = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._renew_now = asyncio.Event()
        self._seen: dict[str, tuple[LeaseRecord, float]] = {}
        self._said = ""
        self.problem: str | None = None
        """Why this process cannot take part, None where it can."""
        self.leases: Store[LeaseRecord] = Store(listener=self._lease_changed)
        """To be kept up to date by a watch of all Leases of operators."""

    @property
    def leads(self) -> bool:
        """Whether this process leads."""
        return self._held is not None

    @property
    def overlapping(self) -> list[LeaseRecord]:
        """Leases for some of the same jobs that other processes hold."""
        return [
            record
            for record in self.leases
            if record.name != self._name
            and self._in_common(record) is not None
            and record.holder
            and self._expires_in(record) > 0
        ]

    def _in_common(self, record: LeaseRecord) -> Scope | None:
        # A Lease that does not say which jobs it stands for may stand for any.
        return self._scope if record.scope is None else self._scope.common(record.scope)

    @property
    def standing_by(self) -> str:
        """Whose Leases this process waits for although they are others than its own, "" where there are none."""
        return ", ".join(map(self._described, self.overlapping))

    def epoch_over(self, written: int | None) -> int:
        """See `ddpjob_core.engine.protocols.Leadership`."""
        held = self._held
        if held is None:
            raise NotLeading("this process does not lead: it writes nothing")
        if written is None or written <= held.transitions:
            return held.transitions
        if written > held.transitions + _LARGEST_STEP:
            return min(written, LARGEST_EPOCH)
        # Either another process leads, or the Lease was deleted and counts from the start: only a renewal can tell.
        self._floor = max(self._floor, written)
        self._renew_now.set()
        raise NotLeading(f"a status was written in term {written}, after this one ({held.transitions})")

    async def run(self, leader: Leader) -> None:
        """Take part until cancelled; to be started when this process is able to lead.

        Args:
            leader: what follows the terms of this process.
        """
        self._leader = leader
        while True:
            await self._campaign()
            await self._hold()

    async def release(self) -> None:
        """Stop leading, and let another process take over at once; to be called after `run` was cancelled."""
        held = self._held
        if held is None:
            return
        await self._fence.drain(self._times.drain)
        self._end("it was asked to stop")
        try:
            async with asyncio.timeout(self._times.drain):
                try:
                    await self._kube.replace(LEASES, released(held.raw))
                except Conflict:
                    # The answer to a renewal that was under way has been lost.
                    record = lease_record(await self._kube.get(LEASES, self._place, self._name))
                    if record is not None and record.holder == self._identity:
                        await self._kube.replace(LEASES, released(record.raw))
        except (ApiError, TimeoutError) as failure:
            _log.warning("the Lease was not released, it expires in %g s: %s", self._times.duration, failure)
        else:
            _log.info("released Lease %s/%s", self._place, self._name)

    async def _campaign(self) -> None:
        while True:
            self._changed.clear()
            wait = self._wait()
            if wait <= 0:
                try:
                    if await self._take():
                        return
                    # Of several that have met, the first to wake takes its Lease while the others cannot react to it.
                    await asyncio.sleep(self._times.retry * random.uniform(0.0, 1.0))  # noqa: S311 as below
                except (AlreadyExists, Conflict):
                    # Another process was faster, or the Lease has lost the labels by which it is watched.
                    await self._find()
                except ApiError as failure:
                    self._complain(failure)
                wait = self._times.retry * random.uniform(1.0, 2.0)  # noqa: S311 keeps candidates apart
                self._changed.clear()
            await _set_within(self._changed, wait)

    async def _find(self) -> None:
        try:
            self._remember(await self._kube.get(LEASES, self._place, self._name))
        except ApiError as failure:
            self._complain(failure)

    def _wait(self) -> float:
        """Seconds until the Lease may be taken if nothing changes."""
        others = self.overlapping
        if others:
            why = f"{self.standing_by} serves some of the same jobs. Give each operator namespaces of its own"
            self._say(f"standing by: {why}")
            return max(self._expires_in(record) for record in others)
        last = self._seen.get(self._name)
        if last is None or last[0].holder in ("", self._identity):
            return 0.0
        self._say(f"standing by: {last[0].holder} leads")
        return self._expires_in(last[0])

    def _described(self, record: LeaseRecord) -> str:
        common = "namespaces unknown" if record.scope is None else str(self._in_common(record))
        return f"{record.holder} (Lease {self._place}/{record.name}, {common})"

    def _expires_in(self, record: LeaseRecord) -> float:
        seen = self._seen.get(record.name)
        since = seen[1] if seen is not None else self._clock()
        return since + max(record.duration, self._times.duration) - self._clock()

    async def _take(self) -> bool:
        begun = self._clock()
        last = self._seen.get(self._name)
        known = self.leases.get(self._place, self._name)
        terms = max(last[0].transitions if last is not None else 0, self._floor)
        raw = taken(
            new_lease(self._place, self._scope) if known is None else known.raw,
            self._scope,
            holder=self._identity,
            transitions=min(terms + 1, LARGEST_EPOCH),
            duration=self._times.duration,
        )
        answer = await (self._kube.create if known is None else self._kube.replace)(LEASES, raw)
        held = self._remember(answer)
        # After it was taken: of two processes that take overlapping Leases at the same moment, one sees the other's.
        records = []
        version = ""
        async for page in self._kube.list_pages(LEASES, self._place, keep=lease_record, selector=LEASE_SELECTOR):
            records += [record for record in page.items if record is not None]
            version = page.resource_version
        self.leases.replace(records, version)
        if self.overlapping:
            await self._kube.replace(LEASES, released(held.raw))
            return False
        self._begin(held, begun)
        return self.leads

    def _remember(self, answer: Json) -> LeaseRecord:
        record = lease_record(answer)
        if record is None:
            raise Conflict("the answer to a change of the Lease shows no Lease")
        self.leases.remember(record)
        return record

    def _begin(self, held: LeaseRecord, begun: float) -> None:
        self.problem = None
        self._held = held
        self._extend(begun)
        if not self._fence.is_open:
            # The requests took longer than the Lease lasts.
            self._held = None
            return
        self._say(f"leading in term {held.transitions} (Lease {self._place}/{self._name})")
        if self._leader is not None:
            self._leader.begin()

    def _extend(self, begun: float) -> None:
        self._deadline = begun + self._times.deadline
        self._fence.open(self._deadline)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = max(0.0, self._deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(left, self._expire)

    def _expire(self) -> None:
        if self._clock() < self._deadline:
            self._arm()
        else:
            self._end(f"the Lease could not be renewed for {self._times.deadline:g} s")

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._held is None:
            return
        self._held = None
        self._fence.close()
        self._say(f"leading no longer: {reason}")
        if self._leader is not None:
            self._leader.end()
        self._renew_now.set()

    async def _hold(self) -> None:
        wait = self._times.renewal
        while self.leads:
            await _set_within(self._renew_now, wait)
            self._renew_now.clear()
            wait = self._times.renewal if await self._renew() else self._times.retry

    async def _renew(self) -> bool:
        """Whether it was renewed; if not, it is tried again soon, or this process leads no longer."""
        held = self._held
        if held is None:
            return False
        begun = self._clock()
        transitions = held.transitions if held.transitions >= self._floor else min(self._floor + 1, LARGEST_EPOCH)
        try:
            record = self._remember(
                await self._kube.replace(LEASES, renewed(held.raw, self._scope, transitions=transitions))
            )
        except NotFound:
            self._end("the Lease was deleted")
            return False
        except Conflict:
            await self._look(held)
            return False
        except ApiError as failure:
            self._complain(failure)
            return False
        if not self.leads:
            # Too late: it is taken again.
            return False
        self.problem = None
        self._held = record
        self._extend(begun)
        return True

    async def _look(self, held: LeaseRecord) -> None:
        """The Lease is not as it was left: another process has taken it, or a user has edited it."""
        try:
            record = self._remember(await self._kube.get(LEASES, self._place, self._name))
        except ApiError as failure:
            self._complain(failure)
            return
        if record.holder != self._identity or record.uid != held.uid:
            self._end(f"{record.holder or 'nobody'} holds the Lease")
        elif self._held is not None:
            self._held = replace(record, transitions=max(record.transitions, held.transitions))

    def _lease_changed(self, before: LeaseRecord | None, after: LeaseRecord | None) -> None:
        record = after or before
        if record is None:
            return
        if after is None and record.name != self._name:
            self._seen.pop(record.name, None)
        elif after is None:
            self._renew_now.set()
        elif after is not None:
            self._seen[record.name] = (after, self._clock())
            if self._held is not None and after.name == self._name and after.holder != self._identity:
                self._end(f"{after.holder or 'nobody'} holds the Lease")
        self._changed.set()

    def _complain(self, failure: ApiError) -> None:
        if isinstance(failure, Forbidden | NotFound):
            self.problem = f"the Lease {self._place}/{self._name} cannot be used: {failure}"
        self._say(f"the Lease {self._place}/{self._name} cannot be used: {failure}", logging.WARNING)

    def _say(self, text: str, level: int = logging.INFO) -> None:
        # The same is not said every half second.
        if text != self._said:
            self._said = text
            _log.log(level, "%s", text)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, for so long at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
