"""Two operators of the same jobs: one leads, the other stands by, and every restart is counted exactly."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ddpjob_core.api.resources import LEASES
from ddpjob_core.api.scope import LEASE_NAMESPACE, Scope
from ddpjob_operator.connection import connect
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.stage import ForkedOperator, Stage, all_run, phase_is, pods_created, set_stage, until

pytestmark = pytest.mark.timeout(300)

SECONDS = 60 if os.environ.get("DDPJOB_FULL") == "1" else 20
"""How long the leader is disturbed again and again."""
NODES = 2
WAYS = ("kill", "stop", "pause", "cut off")


@dataclass
class Replica:
    """An operator process and its own way to the API server."""

    operator: ForkedOperator
    proxy: FaultyProxy
    starts: int = 0
    name: str = ""

    async def start(self) -> None:
        """Start it in a pod of its own."""
        self.starts += 1
        self.operator.pod = f"{self.name}-{self.starts}"
        await self.operator.start()

    async def leads(self) -> bool:
        """Whether it says so."""
        return await self.operator.metric("leading") == 1

    async def is_ready(self) -> bool:
        """Whether it could lead."""
        return (await self.operator.fetch("/readyz"))[0] == 200


@dataclass
class Pair:
    """Two replicas in a namespace."""

    stage: Stage
    replicas: list[Replica] = field(default_factory=list)

    async def leader(self) -> tuple[Replica, Replica]:
        """The one that leads, and the other one."""
        found: list[Replica] = []

        async def one_leads() -> bool:
            found[:] = [each for each in self.replicas if await each.leads()]
            return len(found) == 1

        await until("one leads", one_leads)
        return found[0], next(each for each in self.replicas if each is not found[0])

    async def holder(self) -> str:
        """The holder in the Lease."""
        lease = await self.stage.admin.kube.get(LEASES, LEASE_NAMESPACE, Scope.of(self.stage.namespace).lease)
        return str(lease["spec"].get("holderIdentity", ""))


@contextlib.asynccontextmanager
async def set_pair(plane: ControlPlane, folder: Path, *arguments: str) -> AsyncIterator[Pair]:
    """Two operators, both started and ready."""
    async with set_stage(plane, folder, *arguments) as stage, contextlib.AsyncExitStack() as ends:
        upstream = await connect(str(plane.operator_kubeconfig))
        ends.push_async_callback(upstream.close)
        proxy = await ends.enter_async_context(FaultyProxy(upstream))
        other = ForkedOperator(
            proxy.write_kubeconfig(folder / "other.json"),
            folder / "other.log",
            f"--namespace={stage.namespace}",
            *arguments,
        )
        ends.push_async_callback(other.end)
        assert isinstance(stage.operator, ForkedOperator)
        pair = Pair(stage, [Replica(stage.operator, stage.proxy, name="one"), Replica(other, proxy, name="other")])
        for replica in pair.replicas:
            await replica.start()
        for replica in pair.replicas:
            await until("it is ready", replica.is_ready)
        yield pair


async def test_a_standby_neither_polls_nor_writes_and_takes_over_as_soon_as_the_leader_stops(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    step = 20

    async def progress(_: web.Request) -> web.Response:
        return web.json_response({"epoch": 2, "totalEpochs": 5, "step": step, "totalSteps": 50, "loss": 0.25})

    app = web.Application()
    app.add_routes([web.get("/progress", progress)])
    # It would take a minute to take over a Lease that is not released.
    arguments = ("--lease-duration=60", "--poll-interval=0.2")
    async with set_pair(control_plane, tmp_path, *arguments) as pair, TestServer(app) as rank0:
        stage = pair.stage
        leader, standby = await pair.leader()
        # Both may have tried to create the Lease.
        tries = len(standby.proxy.renewals)
        await stage.create("digits", nodes=1, metrics={"port": rank0.port})
        await until("the step is shown", lambda: shows_step(stage, "digits", "20/50"))
        assert standby.proxy.writes == []
        assert len(standby.proxy.renewals) == tries
        _, text = await standby.operator.fetch("/metrics")
        assert 'ddpjob_operator_progress_polls_total{outcome="ok"}' not in text
        assert 'ddpjob="digits"' not in text, "a job is reported once"
        epoch = (await stage.status("digits"))["leaderEpoch"]
        assert await leader.operator.stop() == 0
        step = 30
        await until("the next step is shown", lambda: shows_step(stage, "digits", "30/50"))
        status = await stage.status("digits")
        assert (status["leaderEpoch"], status["attempt"], status["restarts"]["counted"]) == (epoch + 1, 0, 0)
        assert (await pair.holder()).startswith(standby.name)


async def shows_step(stage: Stage, name: str, step: str) -> bool:
    return str((await stage.status(name)).get("summary", {}).get("step")) == step


async def test_a_standby_that_has_missed_what_became_of_a_job_does_nothing_to_it_before_it_knows(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_pair(control_plane, tmp_path, "--lease-duration=60") as pair:
        stage = pair.stage
        leader, standby = await pair.leader()
        leader.proxy.open.clear()
        await stage.create("digits", nodes=NODES)
        await until("the standby knows the job", lambda: is_shown(standby, "digits"))
        standby.proxy.block("ddpjobs")
        leader.proxy.open.set()
        await until("it runs", lambda: all_run(stage, "digits", NODES))
        await stage.set_spec("digits", suspend=True)
        await until("it is suspended", lambda: phase_is(stage, "digits", "Suspended"))
        await until("its pods are gone", lambda: has_no_pods(standby))
        assert await leader.operator.stop() == 0
        await until("the standby has tried to write", lambda: has_tried(standby))
        await asyncio.sleep(1)
        assert not [str(write) for write in standby.proxy.writes if write.done and "events" not in write.what]
        standby.proxy.blocked.clear()
        await stage.set_spec("digits", suspend=False)
        await until("it runs again", lambda: all_run(stage, "digits", NODES))
        await until("all pods are noted", lambda: pods_created(stage, "digits", 1))
        assert (await stage.status("digits"))["restarts"]["counted"] == 0


async def is_shown(replica: Replica, name: str) -> bool:
    return name in replica.proxy.shown.get("ddpjobs", {})


async def has_no_pods(replica: Replica) -> bool:
    return not replica.proxy.shown.get("pods")


async def has_tried(replica: Replica) -> bool:
    return bool(replica.proxy.writes)


class Lane:
    """One job, which is restarted and suspended as soon as it runs again."""

    def __init__(self, stage: Stage, name: str, dice: random.Random) -> None:
        self.stage = stage
        self.name = name
        self.dice = dice
        self.attempts = 1
        self.failures = 0

    async def play(self, until_moment: float) -> None:
        restart = {"maxRestarts": 500, "backoffSeconds": 0}
        await self.stage.create(self.name, nodes=NODES, restart=restart)
        await self._runs()
        while not self.failures or monotonic() < until_moment:
            if not self.failures or self.dice.random() < 0.6:
                pod = f"{self.name}-a{self.attempts - 1}-{self.dice.randrange(NODES)}"
                self.failures += 1
                self.stage.kubelet.exits[pod] = 1
            else:
                await self.stage.set_spec(self.name, suspend=True)
                await until(f"{self.name} is suspended", self._is_suspended)
                await self.stage.set_spec(self.name, suspend=False)
            self.attempts += 1
            await self._runs()

    async def _runs(self) -> None:
        await until(f"{self.name} runs in attempt {self.attempts - 1}", self._is_running)

    async def _is_running(self) -> bool:
        created = await pods_created(self.stage, self.name, self.attempts - 1)
        return created and await all_run(self.stage, self.name, NODES)

    async def _is_suspended(self) -> bool:
        return await phase_is(self.stage, self.name, "Suspended")


async def disturb(pair: Pair, dice: random.Random, until_moment: float) -> Counter[str]:
    """Kill, stop, pause or cut off the leader, again and again."""
    done: Counter[str] = Counter()
    while monotonic() < until_moment or done.total() < len(WAYS):
        leader, _ = await pair.leader()
        least = min(done[each] for each in WAYS)
        how = dice.choice([each for each in WAYS if done[each] == least])
        done[how] += 1
        match how:
            case "kill":
                leader.operator.kill()
                await leader.operator.gone()
                await leader.start()
            case "stop":
                assert await leader.operator.stop() == 0
                await leader.start()
            case "pause":
                # Longer than the Lease lasts: it wakes up and believes that it leads.
                os.kill(leader.operator.pid, signal.SIGSTOP)
                await asyncio.sleep(dice.uniform(2.5, 4))
                os.kill(leader.operator.pid, signal.SIGCONT)
            case _:
                leader.proxy.dead = True
                for resource in ("pods", "services", "ddpjobs", "leases"):
                    leader.proxy.cut(resource)
                await asyncio.sleep(dice.uniform(2.5, 4))
                leader.proxy.dead = False
        await asyncio.sleep(dice.uniform(0, 1))
    return done


async def test_of_two_operators_whose_leader_changes_all_the_time_every_restart_is_counted_exactly(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    dice = random.Random(20)  # noqa: S311 the same each time
    async with set_pair(control_plane, tmp_path, "--lease-duration=2") as pair:
        lanes = [Lane(pair.stage, f"job-{number}", random.Random(number)) for number in range(4)]  # noqa: S311
        end = monotonic() + SECONDS
        try:
            async with asyncio.TaskGroup() as playing:
                disturbing = playing.create_task(disturb(pair, dice, end))
                for lane in lanes:
                    playing.create_task(lane.play(end))
            await pair.leader()
        except BaseException as error:
            for replica in pair.replicas:
                error.add_note(replica.operator.log()[-4000:])
            raise
        assert set(disturbing.result()) == set(WAYS)
        for lane in lanes:
            status = await pair.stage.status(lane.name)
            counts = {"attempt": status["attempt"], **{key: status["restarts"][key] for key in ("counted", "ignored")}}
            assert counts == {"attempt": lane.attempts - 1, "counted": lane.failures, "ignored": 0}, lane.name
        assert_made_once(pair, lanes)
        for replica in pair.replicas:
            assert "Traceback" not in replica.operator.log()


def assert_made_once(pair: Pair, lanes: list[Lane]) -> None:
    """No pod was created twice, by the same process or by both, and none that is not of an attempt."""
    writes = [write for replica in pair.replicas for write in replica.proxy.writes if write.done]
    made = Counter(write.what for write in writes if str(write).startswith("POST pods/"))
    expected: dict[str, Any] = {
        f"pods/{lane.name}-a{attempt}-{ordinal}": 1
        for lane in lanes
        for attempt in range(lane.attempts)
        for ordinal in range(NODES)
    }
    assert made == expected
