"""The operator is killed at every single write of a job's life."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.crash_points import (
    FULL,
    NODES,
    Lane,
    Phase,
    created,
    nothing,
    play_with_every_crash,
    running,
    set_lanes,
    training,
)
from tests.apiserver.stage import Stage, phase_is, pods_created, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

FAILING = NODES - 1
"""Ordinal of the pod that fails."""


async def one_pod_fails(stage: Stage, name: str) -> None:
    stage.kubelet.exits[f"{name}-a0-{FAILING}"] = 1


async def running_for_once(stage: Stage, name: str) -> None:
    await running(stage, name, restart={"maxRestarts": 0})


async def running_with_less(stage: Stage, name: str) -> None:
    await running(stage, name, nodes=NODES - 1, elastic={"maxNodes": NODES})


async def running_with_all(stage: Stage, name: str) -> None:
    await running(stage, name, elastic={"maxNodes": NODES})


async def asked_to_grow(stage: Stage, name: str) -> None:
    await stage.set_spec(name, nodes=NODES)


async def asked_to_shrink(stage: Stage, name: str) -> None:
    await stage.set_spec(name, nodes=NODES - 1)


async def training_with_all(stage: Stage, name: str) -> None:
    await training(stage, name, elastic={"maxNodes": NODES})


async def one_pod_is_killed(stage: Stage, name: str) -> None:
    stage.kubelet.exits[f"{name}-a0-{FAILING}"] = 137


async def has_rejoined(stage: Stage, name: str) -> bool:
    status, pods = await stage.status(name), await stage.pods(name)
    # The one that was killed stays, for its log.
    pods = [pod for pod in pods if pod["metadata"]["name"] != f"{name}-a0-{FAILING}"]
    told = {"generation": 1, "nodes": NODES, "formed": 0, "members": {str(FAILING): 1}}
    known = [json.loads(pod["metadata"]["annotations"]["ddpjob.dev/membership"]) for pod in pods]
    return bool("rejoining" not in status["membership"] and known == [told] * NODES)


async def has_grown(stage: Stage, name: str) -> bool:
    return await has_size(stage, name, NODES)


async def has_shrunk(stage: Stage, name: str) -> bool:
    return await has_size(stage, name, NODES - 1)


async def has_size(stage: Stage, name: str, nodes: int) -> bool:
    """Whether so many nodes train together, all of them know it, and no others are left."""
    status, pods = await stage.status(name), await stage.pods(name)
    resizing = next(each for each in status["conditions"] if each["type"] == "Resizing")
    known = [json.loads(pod["metadata"]["annotations"]["ddpjob.dev/membership"]) for pod in pods]
    return bool(resizing["status"] == "False" and known == [{"generation": 1, "nodes": nodes}] * nodes)


async def has_failed(stage: Stage, name: str) -> bool:
    left = {pod["metadata"]["name"] for pod in await stage.pods(name)}
    return await phase_is(stage, name, "Failed") and left == {f"{name}-a0-{FAILING}"}


async def is_restarted(stage: Stage, name: str) -> bool:
    live = [pod for pod in await stage.pods(name) if pod["metadata"]["labels"]["ddpjob.dev/attempt"] == "1"]
    return await pods_created(stage, name, 1) and sum(pod["status"].get("phase") == "Running" for pod in live) == NODES


async def suspended(stage: Stage, name: str) -> None:
    await stage.set_spec(name, suspend=True)


async def is_suspended(stage: Stage, name: str) -> bool:
    return await phase_is(stage, name, "Suspended") and not await stage.pods(name)


async def all_pods_end(stage: Stage, name: str) -> None:
    for ordinal in range(NODES):
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


def pods_of(attempt: int, verb: str) -> frozenset[str]:
    """One write for each pod of an attempt."""
    return frozenset(f"{verb} pods/@-a{attempt}-{ordinal}" for ordinal in range(NODES))


# Neither is watched: whether they are there is asked by creating them.
ASKED = frozenset({"POST configmaps/@-launcher-#", "POST persistentvolumeclaims/@-checkpoints"})
# The pod that failed stays, for its log.
LEFT = pods_of(0, "DELETE") - {f"DELETE pods/@-a0-{FAILING}"}
RESTARTED = LEFT | ASKED | pods_of(1, "POST")
GROWN = pods_of(0, "PATCH") | {f"POST pods/@-a0-{FAILING}"}
REJOINED = (pods_of(0, "PATCH") - {f"PATCH pods/@-a0-{FAILING}"}) | {f"POST pods/@-a0-{FAILING}-1"}
SHRUNK = (pods_of(0, "PATCH") - {f"PATCH pods/@-a0-{FAILING}"}) | {f"DELETE pods/@-a0-{FAILING}"}
PHASES = (
    Phase("create", nothing, created, pods_created, 1, ASKED | pods_of(0, "POST") | {"POST services/@"}),
    Phase("restart", running, one_pod_fails, is_restarted, 2, RESTARTED, restarts=1, attempts=2),
    Phase("fail", running_for_once, one_pod_fails, has_failed, 1, LEFT),
    Phase("suspend", running, suspended, is_suspended, 2, pods_of(0, "DELETE")),
    Phase("grow", running_with_less, asked_to_grow, has_grown, 2, GROWN),
    Phase("shrink", running_with_all, asked_to_shrink, has_shrunk, 2, SHRUNK),
    Phase(
        "rejoin",
        training_with_all,
        one_pod_is_killed,
        has_rejoined,
        3,
        REJOINED,
        restarts=1,
        more_pods=frozenset({f"@-a0-{FAILING}-1"}),
    ),
    Phase("finish", running, all_pods_end, is_finished, 1, frozenset()),
    Phase("delete", finished, expires, is_gone, 0, frozenset({"DELETE ddpjobs/@"})),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lanes(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Lane, ...]]:
    async with set_lanes(control_plane, tmp_path_factory.mktemp("lanes")) as lanes:
        yield lanes


IN_FULL_RUNS = pytest.mark.skipif(
    not FULL,
    reason="it deletes pods and writes the status, as the restart does: make test-full",
)


@pytest.mark.parametrize(
    "phase",
    [pytest.param(each, marks=[IN_FULL_RUNS] if each.name == "fail" else [], id=each.name) for each in PHASES],
)
async def test_a_crash_at_any_write_leads_to_the_same_end(lanes: tuple[Lane, ...], phase: Phase) -> None:
    await play_with_every_crash(lanes, phase)
