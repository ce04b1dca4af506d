"""The operator is killed at every single write of a job's life, before it and during it, and started again.

Each phase is first played without a crash, to count its writes. Then it is played again for each of them, the process
being killed right before the write is forwarded, or after the API server has done it and before the answer arrives.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import Write
from tests.apiserver.stage import Stage, all_run, phase_is, set_stage, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

LANES = 3

Step = Callable[[Stage, str], Awaitable[None]]


@dataclass(frozen=True)
class Phase:
    """A part of a job's life: what comes before it, what begins it, and when it is over."""

    name: str
    before: Step
    begin: Step
    over: Callable[[Stage, str], Awaitable[bool]]
    least_writes: int
    restarts: int = 0
    attempts: int = 1


async def nothing(_: Stage, __: str) -> None:
    """Nothing comes before."""


async def created(stage: Stage, name: str) -> None:
    await stage.create(name)


async def running(stage: Stage, name: str) -> None:
    await stage.create(name)
    await until(f"{name} runs", lambda: all_run(stage, name))
    await until(f"{name} is told to have its pods", lambda: pods_created(stage, name))


async def pods_created(stage: Stage, name: str, attempt: int = 0) -> bool:
    status = await stage.status(name)
    return bool(status.get("podsCreated") and status.get("attempt") == attempt)


async def one_pod_fails(stage: Stage, name: str) -> None:
    stage.kubelet.exits[f"{name}-a0-2"] = 1


async def is_restarted(stage: Stage, name: str) -> bool:
    live = [pod for pod in await stage.pods(name) if pod["metadata"]["labels"]["ddpjob.dev/attempt"] == "1"]
    return await pods_created(stage, name, 1) and sum(pod["status"].get("phase") == "Running" for pod in live) == 4


async def suspended(stage: Stage, name: str) -> None:
    await stage.set_spec(name, suspend=True)


async def is_suspended(stage: Stage, name: str) -> bool:
    return await phase_is(stage, name, "Suspended") and not await stage.pods(name)


async def all_pods_end(stage: Stage, name: str) -> None:
    for ordinal in range(4):
        stage.kubelet.exits[f"{name}-a0-{ordinal}"] = 0


async def is_finished(stage: Stage, name: str) -> bool:
    return await phase_is(stage, name, "Succeeded")


async def finished(stage: Stage, name: str) -> None:
    await running(stage, name)
    await all_pods_end(stage, name)
    await until(f"{name} succeeds", lambda: is_finished(stage, name))


async def expires(stage: Stage, name: str) -> None:
    await stage.set_spec(name, ttlSecondsAfterFinished=0)


async def is_gone(stage: Stage, name: str) -> bool:
    return not await stage.exists(name) and not await stage.children(name)


PHASES = (
    Phase("create", nothing, created, pods_created, 8),
    Phase("restart", running, one_pod_fails, is_restarted, 11, restarts=1, attempts=2),
    Phase("suspend", running, suspended, is_suspended, 7),
    Phase("finish", running, all_pods_end, is_finished, 2),
    Phase("delete", finished, expires, is_gone, 1),
)


@dataclass
class Lane:
    """Plays phases one after the other; the jobs of earlier ones may still be around."""

    stage: Stage
    names: Iterator[int]
    crashes: int = 0

    async def play(self, phase: Phase, *, crash_at: int | None = None, answered: bool = False) -> int:
        """Play a phase with a new job, check what became of it, and delete it.

        Args:
            phase: what is played.
            crash_at: number of the write of the phase at which the operator is killed, None for never.
            answered: whether the API server has done that write.

        Returns:
            How many writes the phase took.
        """
        stage, proxy = self.stage, self.stage.proxy
        name = f"{phase.name}-{next(self.names)}"
        await phase.before(stage, name)
        await self._come_to_rest()
        crashed = asyncio.create_task(proxy.crashed.wait())
        if crash_at is not None:
            proxy.crash(stage.operator.kill, at=crash_at, answered=answered)
        before = len(proxy.writes)
        await phase.begin(stage, name)
        over = asyncio.create_task(until(f"{name} is over", lambda: phase.over(stage, name)))
        await asyncio.wait((over, crashed), return_when=asyncio.FIRST_COMPLETED)
        # An event may follow the end of a phase. Writes that wait for their turn can also fall together, so that a
        # phase takes one write less than when it was counted: then there is no crash.
        await self._come_to_rest()
        crashed.cancel()
        if proxy.crashed.is_set():
            self.crashes += 1
            await stage.operator.gone()
            await stage.operator.start()
        proxy.revive()
        await over
        await self._come_to_rest()
        await self._check(phase, name, proxy.writes[before:])
        await stage.delete(name)
        return len(proxy.writes) - before

    async def _come_to_rest(self) -> None:
        """Until no write has come for a while."""
        proxy = self.stage.proxy

        async def quiet() -> bool:
            before = len(proxy.writes)
            await asyncio.sleep(0.2)
            return len(proxy.writes) == before

        await until("the operator comes to rest", quiet)

    async def _check(self, phase: Phase, name: str, phase_writes: list[Write]) -> None:
        stage = self.stage
        strangers = [str(write) for write in phase_writes if name not in write.what]
        assert not strangers, "a restarted operator writes nothing to jobs that have not changed"
        writes = [write for write in stage.proxy.writes if name in write.what]
        done = Counter(str(write) for write in writes if write.done)
        pods = {f"POST pods/{name}-a{attempt}-{ordinal}" for attempt in range(phase.attempts) for ordinal in range(4)}
        made = {what: count for what, count in done.items() if what.startswith("POST pods/")}
        assert made == dict.fromkeys(pods, 1), "exactly one pod for each rank and attempt"
        repeated = [what for what, count in done.items() if count > 1 and what.split("/")[0] in _ONCE]
        assert not repeated, "no write is repeated"
        # The launcher's ConfigMap is not watched: each attempt, and each new process, asks for it once.
        refused = [write for write in writes if not write.done and "configmaps" not in write.what]
        assert not refused, "no write is refused"
        reasons = Counter(await stage.events(name))
        assert all(
            count == 1 or (reason, count) == ("PodsCreated", phase.attempts) for reason, count in reasons.items()
        )
        if phase.name != "delete":
            status = await stage.status(name)
            assert (status["restarts"]["counted"], status["attempt"]) == (phase.restarts, phase.attempts - 1)


_ONCE = ("POST pods", "POST services", "POST configmaps", "DELETE pods", "DELETE ddpjobs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lanes(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Lane, ...]]:
    folder, names = tmp_path_factory.mktemp("lanes"), itertools.count()
    async with contextlib.AsyncExitStack() as ends:
        stages = [await ends.enter_async_context(set_stage(control_plane, folder)) for _ in range(LANES)]
        for stage in stages:
            await stage.operator.start()
        yield tuple(Lane(stage, names) for stage in stages)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
async def test_a_crash_at_any_write_leads_to_the_same_end(lanes: tuple[Lane, ...], phase: Phase) -> None:
    counted = await lanes[0].play(phase)
    assert counted >= phase.least_writes
    crashes = [(at, answered) for at in range(1, counted + 1) for answered in (False, True)]
    planned, before = len(crashes), sum(lane.crashes for lane in lanes)

    async def play_all(lane: Lane) -> None:
        while crashes:
            at, answered = crashes.pop(0)
            try:
                await lane.play(phase, crash_at=at, answered=answered)
            except AssertionError as error:
                when = "after" if answered else "before"
                error.add_note(f"the operator was killed {when} write {at} of {counted} of the phase {phase.name}")
                error.add_note(lane.stage.operator.log()[-3000:])
                raise

    async with asyncio.TaskGroup() as playing:
        for lane in lanes:
            playing.create_task(play_all(lane))
    # Two writes at most may fall together with another one.
    assert sum(lane.crashes for lane in lanes) - before >= planned - 4
