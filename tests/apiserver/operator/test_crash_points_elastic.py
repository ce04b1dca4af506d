"""The operator is killed at every single write while an elastic job has spare nodes, or two things happen together."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.crash_points import (
    FULL,
    NODES,
    Lane,
    Phase,
    play_with_every_crash,
    running,
    set_lanes,
    training,
)
from tests.apiserver.stage import Stage, phase_is, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]

LAST = NODES - 1
SIZE = 3
"""Of a job that loses two nodes, or loses one while another one joins."""
SPARE = {"maxNodes": NODES, "spareNodes": 1}
KILLED = 137


async def training_alone(stage: Stage, name: str) -> None:
    await training(stage, name, elastic={"maxNodes": NODES})


async def asked_for_a_spare(stage: Stage, name: str) -> None:
    await stage.set_spec(name, elastic=SPARE)


async def has_spares(stage: Stage, name: str, *numbers: int) -> bool:
    """Whether these spares wait, all of which have been seen."""
    spares = ((await stage.status(name)).get("membership") or {}).get("spares") or {}
    return [each["number"] for each in spares.get("waiting", ()) if each.get("created")] == list(numbers)


async def has_a_spare(stage: Stage, name: str) -> bool:
    running = [pod["metadata"]["name"] for pod in await stage.pods(name) if pod["status"].get("phase") == "Running"]
    return f"{name}-a0-s1" in running and await has_spares(stage, name, 1)


async def training_with_a_spare(stage: Stage, name: str) -> None:
    await training(stage, name, elastic=SPARE)
    await until(f"{name} has a spare", lambda: has_a_spare(stage, name))


async def one_node_is_killed(stage: Stage, name: str) -> None:
    stage.kubelet.exits[f"{name}-a0-{LAST}"] = KILLED


async def the_spare_is_a_node(stage: Stage, name: str) -> bool:
    status, pods = await stage.status(name), {pod["metadata"]["name"]: pod for pod in await stage.pods(name)}
    named = pods.get(f"{name}-a0-s1")
    if named is None or "rejoining" in status["membership"] or not await has_spares(stage, name, 2):
        return False
    labels = named["metadata"]["labels"]
    told = {"generation": 1, "nodes": NODES, "formed": 0, "members": {str(LAST): 1}, "spares": {str(LAST): 1}}
    assert known_to(named) == told
    assert (labels["ddpjob.dev/ordinal"], labels["ddpjob.dev/attempt"]) == (str(LAST), "0")
    assert "ddpjob.dev/spare" not in labels
    return known_to(pods[f"{name}-a0-0"]) == told


def known_to(pod: Json) -> Json:
    told: Json = json.loads(pod["metadata"]["annotations"]["ddpjob.dev/membership"])
    return told


async def a_spare_and_all_of_it_go(stage: Stage, name: str) -> None:
    await stage.set_spec(name, elastic={"maxNodes": NODES, "spareNodes": 0})


async def has_no_spare(stage: Stage, name: str) -> bool:
    pods = [pod["metadata"]["name"] for pod in await stage.pods(name)]
    return f"{name}-a0-s1" not in pods and await has_spares(stage, name)


async def training_on_three(stage: Stage, name: str) -> None:
    await training(stage, name, nodes=SIZE, elastic={"maxNodes": SIZE})


async def two_are_killed(stage: Stage, name: str) -> None:
    stage.kubelet.exits |= {f"{name}-a0-1": KILLED, f"{name}-a0-2": KILLED}


async def training_on_two_of_three(stage: Stage, name: str) -> None:
    await training(stage, name, nodes=SIZE - 1, elastic={"maxNodes": SIZE})


async def one_is_killed_while_one_joins(stage: Stage, name: str) -> None:
    await stage.set_spec(name, nodes=SIZE)
    stage.kubelet.exits[f"{name}-a0-1"] = KILLED


async def three_train(stage: Stage, name: str) -> bool:
    """Whether three nodes train together and all of them know it, and nothing of the loss is left to do."""
    status = await stage.status(name)
    membership, attempt = status.get("membership") or {}, status["attempt"]
    if not status["podsCreated"] or membership.get("nodes") != SIZE or membership.get("attempt") != attempt:
        return False
    live = [pod for pod in await stage.pods(name) if pod["status"].get("phase") == "Running"]
    live = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
    known = [known_to(pod) for pod in live]
    told = [each["generation"] == membership["generation"] and each["nodes"] == SIZE for each in known]
    return "rejoining" not in membership and len(told) == SIZE and all(told)


async def running_with_less(stage: Stage, name: str) -> None:
    await running(stage, name, nodes=NODES - 1, elastic={"maxNodes": NODES})


async def asked_to_grow_and_suspended(stage: Stage, name: str) -> None:
    await stage.set_spec(name, nodes=NODES)
    await stage.set_spec(name, suspend=True)


async def is_suspended(stage: Stage, name: str) -> bool:
    return await phase_is(stage, name, "Suspended") and not await stage.pods(name)


NAMED = {f"PATCH pods/@-a0-{ordinal}" for ordinal in range(NODES - 1)} | {"PATCH pods/@-a0-s1", "POST pods/@-a0-s2"}
ASKED = frozenset({"POST pods/@-a0-s1"})
PHASES = (
    Phase(
        "spare",
        training_alone,
        asked_for_a_spare,
        has_a_spare,
        1,
        ASKED,
        more_pods=frozenset({"@-a0-s1"}),
    ),
    Phase(
        "named",
        training_with_a_spare,
        one_node_is_killed,
        the_spare_is_a_node,
        3,
        frozenset(NAMED),
        restarts=1,
        more_pods=frozenset({"@-a0-s1", "@-a0-s2"}),
    ),
    Phase(
        "unspare",
        training_with_a_spare,
        a_spare_and_all_of_it_go,
        has_no_spare,
        1,
        frozenset({"DELETE pods/@-a0-s1"}),
        more_pods=frozenset({"@-a0-s1"}),
    ),
    Phase("two", training_on_three, two_are_killed, three_train, 2, frozenset(), restarts=1, nodes=SIZE, loose=True),
    Phase(
        "joining",
        training_on_two_of_three,
        one_is_killed_while_one_joins,
        three_train,
        2,
        frozenset(),
        restarts=1,
        nodes=SIZE,
        loose=True,
    ),
    Phase(
        "resizing",
        running_with_less,
        asked_to_grow_and_suspended,
        is_suspended,
        2,
        frozenset(),
        loose=True,
    ),
)
IN_FULL_RUNS = pytest.mark.skipif(not FULL, reason="each goes more than one way, and takes a while: make test-full")
ALWAYS = ("spare",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lanes(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Lane, ...]]:
    async with set_lanes(control_plane, tmp_path_factory.mktemp("lanes")) as lanes:
        yield lanes


@pytest.mark.parametrize(
    "phase",
    [pytest.param(each, marks=[] if each.name in ALWAYS else [IN_FULL_RUNS], id=each.name) for each in PHASES],
)
async def test_a_crash_at_any_write_leads_to_exact_counts(lanes: tuple[Lane, ...], phase: Phase) -> None:
    await play_with_every_crash(lanes, phase)
