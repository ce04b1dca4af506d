"""A control plane that goes away ends nothing, and work goes on soon after its return.

Here it is away for longer than any limit of the operator that an hour would exceed: the Lease's and the watches' are
shortened.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import ForkedOperator, Stage, all_run, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

LIMITS = ("--lease-duration=2", "--watch-seconds=1")
AWAY = 9.0
"""Seconds: a watch that is not answered for 8 s is reported."""
RESUMES = 5.0
"""Seconds within which the next write comes."""


@contextlib.asynccontextmanager
async def set_direct_stage(plane: ControlPlane, folder: Path) -> AsyncIterator[Stage]:
    """A stage whose operator has no proxy between it and the API server."""
    async with set_stage(plane, folder) as stage:
        operator = ForkedOperator(
            plane.operator_kubeconfig, folder / "direct.log", f"--namespace={stage.namespace}", *LIMITS
        )
        stage.operator = operator
        try:
            yield stage
        finally:
            await operator.end()


async def is_ready(stage: Stage) -> bool:
    return (await stage.operator.fetch("/readyz"))[0] == 200


async def stays_alive(stage: Stage, seconds: float) -> None:
    """The process is healthy all the time, and says that it could not lead now."""
    end = monotonic() + seconds
    while monotonic() < end:
        assert await stage.operator.fetch("/healthz") == (200, "ok\n")
        await asyncio.sleep(0.2)
    assert not await is_ready(stage)
    assert await stage.operator.metric("leading") == 0


async def works_again(stage: Stage, name: str) -> None:
    """The operator answers a failure that it has not seen, and a job that it does not know."""
    await stage.create(f"{name}-new", nodes=1)
    has_pods = partial(all_run, stage, f"{name}-new", 1)
    await until("a new job has its pod", has_pods, RESUMES)
    await until("the failed job is restarted", lambda: restarted(stage, name))
    status = await stage.status(name)
    assert (status["restarts"]["counted"], status["attempt"]) == (1, 1)


async def restarted(stage: Stage, name: str) -> bool:
    return (await stage.status(name)).get("attempt") == 1 and await phase_is(stage, name, "Running")


async def trains(stage: Stage) -> None:
    await stage.operator.start()
    await stage.create("digits", nodes=2)
    await until("it runs", lambda: phase_is(stage, "digits", "Running"))


async def test_a_control_plane_that_is_killed_and_started_again(
    breakable_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = breakable_control_plane
    async with set_direct_stage(plane, tmp_path) as stage:
        await trains(stage)
        plane.kill()
        await stays_alive(stage, AWAY)
        # It fails at the moment at which the API server is back.
        stage.kubelet.exits["digits-a0-1"] = 1
        await asyncio.to_thread(plane.start_api_server)
        assert await asyncio.to_thread(plane.is_well)
        await works_again(stage, "digits")
        assert await stage.operator.stop() == 0
        assert "Traceback" not in stage.operator.log()


@pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="as above in another way: make test-full")
async def test_a_control_plane_that_is_silent_and_answers_again(
    breakable_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = breakable_control_plane
    async with set_direct_stage(plane, tmp_path) as stage:
        await trains(stage)
        stage.kubelet.exits["digits-a0-1"] = 1
        with plane.paused():
            await stays_alive(stage, AWAY)
        await works_again(stage, "digits")


@pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="as above in another way: make test-full")
async def test_an_operator_that_is_started_while_the_control_plane_is_away(
    breakable_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = breakable_control_plane
    async with set_direct_stage(plane, tmp_path) as stage:
        await stage.create("digits", nodes=1)
        plane.kill()
        await stage.operator.start()
        await stays_alive(stage, AWAY)
        await asyncio.to_thread(plane.start_api_server)
        assert await asyncio.to_thread(plane.is_well)
        await until("it runs", lambda: all_run(stage, "digits", 1), RESUMES)
        assert "Traceback" not in stage.operator.log()
