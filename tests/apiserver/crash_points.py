"""The operator is killed at every single write of a part of a job's life, before it and during it, and started again.

A part is first played without a crash, to learn its writes and its end. Then it is played again for each of them, the
process being killed right before the write is forwarded, or after the API server has done it and before the answer
arrives. All must come to the same end.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, PODS, SERVICES
from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import Write
from tests.apiserver.stage import Stage, all_run, pods_created, set_stage, until

FULL = os.environ.get("DDPJOB_FULL") == "1"
LANES = 3
NODES = 3 if FULL else 2
"""Of a job: two are enough for an operator that is killed between two pods that it makes, or that it deletes."""

Step = Callable[[Stage, str], Awaitable[None]]


@dataclass(frozen=True)
class Phase:
    """A part of a job's life: what comes before it, what begins it, and when it is over."""

    name: str
    before: Step
    begin: Step
    over: Callable[[Stage, str], Awaitable[bool]]
    status_writes: int
    """How many there are in each play. One more may come, with counts of pods, which are written every five seconds."""
    other_writes: frozenset[str]
    """All but those of the status and of events, with `@` for the job's name and `#` for the digest of the launcher."""
    restarts: int = 0
    attempts: int = 1
    more_pods: frozenset[str] = frozenset()
    """Names of pods, with `@` for the job's, besides one for each rank and attempt."""
    nodes: int = NODES
    loose: bool = False
    """Whether which way it goes depends on what is seen first: counts and size are always the same, names are not."""


async def nothing(_: Stage, __: str) -> None:
    """Nothing comes before."""


async def created(stage: Stage, name: str, **spec: Any) -> None:
    # A claim that goes with its job, so that nothing is left behind by a phase.
    await stage.create(name, **{"nodes": NODES, "checkpoint": {"size": "1Gi", "retain": "Delete"}, **spec})


async def running(stage: Stage, name: str, **spec: Any) -> None:
    await created(stage, name, **spec)
    await until(f"{name} runs", lambda: all_run(stage, name, spec.get("nodes", NODES)))
    await until(f"{name} says that its pods were created", lambda: pods_created(stage, name))


async def training(stage: Stage, name: str, **spec: Any) -> None:
    """Rank 0 reports steps of whatever membership the status names, as ranks do that can go on without a node."""

    async def progress(_: web.Request) -> web.Response:
        status = await stage.status(name)
        generation = status["membership"]["generation"]
        return web.json_response({"attempt": status["attempt"], "rank": 0, "step": 5, "rejoins": generation})

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    server = TestServer(app)
    await server.start_server()
    await running(stage, name, **spec, metrics={"port": server.port})

    async def says_so() -> bool:
        return ((await stage.status(name)).get("progress") or {}).get("rejoins") == 0

    await until(f"{name} says that it can lose a node", says_so)


@dataclass(frozen=True)
class Crash:
    """Where the operator is killed."""

    write: str
    """Such as `POST pods/@-a0-0`, with `@` for the name of the job and `#` for how the launcher's name ends."""
    occurrence: int
    answered: bool

    def pattern(self, name: str) -> str:
        """A regular expression for this write of a job."""
        return re.escape(self.write.replace("@", name)).replace(re.escape("#"), "[0-9a-f-]+")

    @property
    def of_status(self) -> bool:
        """Whether it is at a write of the status."""
        return self.write == STATUS_WRITE

    def __str__(self) -> str:
        when = "after" if self.answered else "before"
        return f"killed {when} {self.write} ({self.occurrence})"


@dataclass(frozen=True)
class Played:
    """What came of playing a phase: its writes in their order, and the end that it came to."""

    writes: tuple[str, ...]
    end: Json
    crashed: bool


STATUS_WRITE = "PUT ddpjobs/@/status"


@dataclass
class Lane:
    """Plays phases one after the other, each with a job of its own."""

    stage: Stage
    names: Iterator[int]

    async def play(self, phase: Phase, crash: Crash | None = None) -> Played:
        """Play a phase with a new job, check what became of it, and delete it.

        Args:
            phase: what is played.
            crash: where the operator is killed, None for nowhere.
        """
        stage, proxy = self.stage, self.stage.proxy
        name = f"{phase.name}-{next(self.names)}"
        await phase.before(stage, name)
        await self._come_to_rest(name)
        if crash is not None:
            proxy.crash(
                stage.operator.kill, at=crash.pattern(name), occurrence=crash.occurrence, answered=crash.answered
            )
        before = len(proxy.writes)
        await phase.begin(stage, name)
        crashed = await self._over_or_crashed(phase, name)
        if crashed:
            await stage.operator.gone()
            await self._check_intent(phase, name)
            proxy.listing.clear()
            await stage.operator.start()
            proxy.revive()
            # A new process may hear of the job before it hears of the pods: it must not take them for missing.
            if await stage.exists(name):
                await until("the operator hears of the job", self._has_listed_jobs)
            proxy.listing.set()
        proxy.revive()
        await until(f"{name} is over", lambda: phase.over(stage, name))
        await self._come_to_rest(name)
        writes = proxy.writes[before:]
        await self._check(phase, name, writes)
        played = Played(tuple(_of_any_job(str(write), name) for write in writes), await self._end(name), crashed)
        await stage.delete(name)
        return played

    async def _over_or_crashed(self, phase: Phase, name: str) -> bool:
        """Until the phase is over and the operator at rest, or the operator is killed; whether it was."""

        async def over() -> None:
            await until(f"{name} is over", lambda: phase.over(self.stage, name))
            await self._come_to_rest(name)

        crashed = asyncio.create_task(self.stage.proxy.crashed.wait())
        ending = asyncio.create_task(over())
        try:
            await asyncio.wait((ending, crashed), return_when=asyncio.FIRST_COMPLETED)
            if crashed.done():
                return True
            await ending
            return False
        finally:
            crashed.cancel()
            ending.cancel()

    async def _come_to_rest(self, name: str) -> None:
        """Until the operator has been shown all there is, has looked at the job since, and has nothing left to do."""
        operator = self.stage.operator
        await until("the operator has listed everything", self._is_ready)
        await until("the operator has no work", self._is_idle)
        looks = _sample(await self._metrics(), "reconcile_seconds_count")
        if not await self._touch_service(name):
            return

        async def looked() -> bool:
            return _sample(await self._metrics(), "reconcile_seconds_count") > looks

        await until(f"the operator looks at {name} once more", looked)
        await until("the operator has no work after that", self._is_idle)
        assert "Traceback" not in operator.log(), operator.log()

    async def _is_ready(self) -> bool:
        return (await self.stage.operator.fetch("/readyz"))[0] == HTTPStatus.OK

    async def _is_idle(self) -> bool:
        """Nothing waits and nothing is under way, twice, and in between nothing was done."""
        seen = []
        for _ in range(2):
            metrics = await self._metrics()
            if self.stage.proxy.in_flight or _sample(metrics, "queue_depth") or not await self._has_been_shown_all():
                return False
            seen.append((_sample(metrics, "reconcile_seconds_count"), len(self.stage.proxy.writes)))
        return seen[0] == seen[1]

    async def _has_listed_jobs(self) -> bool:
        return "ddpjobs have not been listed" not in (await self.stage.operator.fetch("/readyz"))[1]

    async def _metrics(self) -> str:
        return (await self.stage.operator.fetch("/metrics"))[1]

    async def _has_been_shown_all(self) -> bool:
        for resource in (JOBS, PODS, SERVICES):
            there = await self.stage.admin.all(resource, self.stage.namespace)
            versions = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in there}
            if versions != self.stage.proxy.shown.get(resource.plural, {}):
                return False
        return True

    async def _touch_service(self, name: str) -> bool:
        """Make the operator look once more at a job whose service is there.

        The operator never writes to a service, so that this comes into the way of none of its writes.
        """

        def touch(raw: Json) -> None:
            raw["metadata"].setdefault("annotations", {})["touched"] = str(next(self.names))

        if not await self.stage.exists(name):
            return False
        try:
            await self.stage.admin.change(SERVICES, self.stage.namespace, name, touch)
        except NotFound:
            return False
        return True

    async def _end(self, name: str) -> Json:
        """What a job has come to, without times and names: what must not depend on a crash."""
        if not await self.stage.exists(name):
            return {}
        status = await self.stage.status(name)
        kept = {key: status.get(key) for key in _LASTING}
        kept["children"] = sorted({_of_any_job(each, name) for each in await self.stage.children(name)})
        kept["conditions"] = {one["type"]: one["status"] for one in status["conditions"] if one["type"] in _TURNING}
        end: Json = json.loads(_of_any_job(json.dumps(kept), name), object_hook=_without_times)
        return end

    async def _check_intent(self, phase: Phase, name: str) -> None:
        """No pod is deleted before the status says which attempt comes next: only that tells why it is missing.

        The pods of a job that is gone itself are the garbage collector's.
        """
        if not await self.stage.exists(name):
            return
        deleted = [pod for pod in await self.stage.pods(name) if pod["metadata"].get("deletionTimestamp")]
        gone = [write for write in self.stage.proxy.writes if write.done and f"DELETE pods/{name}-" in str(write)]
        if deleted or gone:
            assert phase.loose or (await self.stage.status(name))["attempt"] == phase.attempts - 1

    async def _check(self, phase: Phase, name: str, phase_writes: list[Write]) -> None:
        stage = self.stage
        strangers = [str(write) for write in phase_writes if name not in write.what]
        assert not strangers, "a restarted operator writes nothing to jobs that have not changed"
        writes = [write for write in stage.proxy.writes if name in write.what]
        done = Counter(str(write) for write in writes if write.done)
        pods = {
            f"POST pods/{name}-a{attempt}-{ordinal}"
            for attempt in range(phase.attempts)
            for ordinal in range(phase.nodes)
        }
        pods |= {f"POST pods/{each.replace('@', name)}" for each in phase.more_pods}
        made = {what: count for what, count in done.items() if what.startswith("POST pods/")}
        assert phase.loose or made == dict.fromkeys(pods, 1), "exactly one pod for each rank and attempt"
        repeated = [what for what, count in done.items() if count > 1 and what.split("/")[0] in _ONCE]
        assert not repeated, "no write is repeated"
        deleted = [at for at, write in enumerate(writes) if str(write).startswith(f"DELETE pods/{name}-a0-")]
        followed = [at for at, write in enumerate(writes) if str(write).startswith(f"POST pods/{name}-a1-")]
        assert phase.loose or not followed or max(deleted) < min(followed), (
            "the pods of an attempt go before the next ones come"
        )
        # Each attempt, and each new process, asks for these once.
        asked = ("configmaps/", "persistentvolumeclaims/")
        refused = [write for write in writes if not write.done and not write.what.startswith(asked)]
        assert not refused, "no write is refused"
        reasons = Counter(await stage.events(name))
        assert phase.loose or all(
            count == 1 or (reason, count) == ("PodsCreated", phase.attempts) for reason, count in reasons.items()
        )
        await self._check_owners(name)
        if phase.name != "delete":
            status = await stage.status(name)
            assert status["restarts"]["counted"] == phase.restarts
            assert phase.loose or status["attempt"] == phase.attempts - 1

    async def _check_owners(self, name: str) -> None:
        """All that carries the job's name goes with the job."""
        if not await self.stage.exists(name):
            return
        uid = (await self.stage.job(name))["metadata"]["uid"]
        for resource in (PODS, SERVICES, CONFIG_MAPS, CLAIMS):
            for raw in await self.stage.admin.all(resource, self.stage.namespace):
                metadata = raw["metadata"]
                if metadata.get("labels", {}).get("ddpjob.dev/job") == name:
                    owners = [owner["uid"] for owner in metadata.get("ownerReferences", [])]
                    assert owners == [uid], f"{resource.plural}/{metadata['name']} is the job's own"


# Each process that creates pods has a ConfigMap of its own for them.
_ONCE = (
    "POST pods",
    "POST services",
    "POST persistentvolumeclaims",
    "DELETE pods",
    "DELETE ddpjobs",
)
# What follows from counts of pods is written every five seconds at most: it may be late.
_LASTING = ("attempt", "podsCreated", "restarts", "failure", "observedGeneration", "membership")
_TURNING = ("Succeeded", "Failed", "Suspended")


def _of_any_job(text: str, name: str) -> str:
    return re.sub(r"(configmaps/@-launcher)-[0-9a-f-]+", r"\1-#", text.replace(name, "@"))


def _without_times(value: Json) -> Json:
    return {key: content for key, content in value.items() if not key.endswith(("Time", "time"))}


def _sample(metrics: str, name: str) -> float:
    """The value of one of the operator's own metrics that has no labels."""
    found = re.search(rf"^ddpjob_operator_{name} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, f"no metric {name}"
    return float(found[1])


@contextlib.asynccontextmanager
async def set_lanes(control_plane: ControlPlane, folder: Path) -> AsyncIterator[tuple[Lane, ...]]:
    """Operators on one API server, each with a namespace of its own."""
    names = itertools.count()
    async with contextlib.AsyncExitStack() as ends:
        stages = [await ends.enter_async_context(set_stage(control_plane, folder)) for _ in range(LANES)]
        for stage in stages:
            await stage.operator.start()
        yield tuple(Lane(stage, names) for stage in stages)


def crashes_of(writes: Sequence[str]) -> list[Crash]:
    """Before and after each write of a phase."""
    seen: Counter[str] = Counter()
    crashes = []
    for write in writes:
        seen[write] += 1
        crashes += [Crash(write, seen[write], answered) for answered in (False, True)]
    return crashes


async def play_with_every_crash(lanes: Sequence[Lane], phase: Phase) -> None:
    """Play a phase without a crash, and with one at each of its writes."""
    whole = await lanes[0].play(phase)
    events = {write for write in whole.writes if write.startswith("POST events/")}
    others = set(whole.writes) - events - {STATUS_WRITE}
    assert phase.loose or others == phase.other_writes, f"differ: {sorted(others ^ phase.other_writes)}"
    assert whole.writes.count(STATUS_WRITE) >= phase.status_writes
    crashes = crashes_of(whole.writes)

    async def play_all(lane: Lane) -> None:
        while crashes:
            crash = crashes.pop(0)
            try:
                played = await lane.play(phase, crash)
                # A count of pods may have been written in the first play and not in this one.
                assert phase.loose or played.crashed or (crash.of_status and crash.occurrence > phase.status_writes)
                assert phase.loose or played.end == whole.end
            except AssertionError as error:
                error.add_note(f"the operator was {crash} of the phase {phase.name}: {whole.writes}")
                error.add_note(lane.stage.operator.log()[-3000:])
                raise

    async with asyncio.TaskGroup() as playing:
        for lane in lanes:
            playing.create_task(play_all(lane))
