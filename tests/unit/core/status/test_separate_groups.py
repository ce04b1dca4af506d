"""A job that has succeeded without having been one training."""

import json

import pytest
from world import World, running_world

from ddpjob_core.api.status import ConditionType, Phase


def ended(*reports: dict[str, int], **fields: object) -> World:
    world = running_world(nodes=len(reports), **fields)
    for name, report in zip(sorted(world.pods), reports, strict=True):
        world.end(name, 0, json.dumps({"exitCode": 0, **report}))
    world.advance(20)
    world.settle()
    return world


@pytest.mark.parametrize("launcher", ["torchrun", "python", "mpirun"])
def test_groups_that_were_smaller_than_the_job_are_a_condition_and_an_event(launcher: str) -> None:
    world = ended({"groupSize": 1, "jobSize": 4}, {"groupSize": 1, "jobSize": 4}, launcher=launcher)
    assert world.status is not None
    assert (world.status.phase, world.status.state) == (Phase.SUCCEEDED, "Succeeded,SeparateGroups")
    condition = world.status.condition(ConditionType.SEPARATE_GROUPS)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "GroupSmallerThanJob")
    assert condition.message.startswith("4 processes were started, but each worked by itself: they did not train one")
    succeeded = world.status.condition(ConditionType.SUCCEEDED)
    assert succeeded is not None
    assert succeeded.message.endswith("but not as one training: see SeparateGroups")
    (event,) = [event for event in world.events if event.reason == "SeparateGroups"]
    assert (event.type, event.message) == ("Warning", condition.message)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            {"groupSize": 2, "jobSize": 3},
            {"groupSize": 2, "jobSize": 4},
            "4 processes were started, but a process group ",
        ),
        ({}, {"groupSize": 1, "jobSize": 2}, "2 processes were started, but each worked by itself"),
    ],
)
def test_the_smallest_group_and_the_most_processes_of_all_nodes_count(
    first: dict[str, int], second: dict[str, int], said: str
) -> None:
    status = ended(first, second).status
    condition = status and status.condition(ConditionType.SEPARATE_GROUPS)
    assert condition
    assert condition.message.startswith(said)


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"groupSize": 1},
        {"jobSize": 4},
        {"groupSize": 4, "jobSize": 4},
        {"groupSize": 0, "jobSize": 4},
        {"groupSize": 2**60, "jobSize": 2**70},
    ],
)
def test_nothing_is_said_where_there_may_have_been_one_group(report: dict[str, int]) -> None:
    status = ended(report, report).status
    assert status is not None
    assert status.holds(ConditionType.SUCCEEDED)
    assert status.condition(ConditionType.SEPARATE_GROUPS) is None
    assert status.state is None
