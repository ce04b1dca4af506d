"""status.slowest: whom rank 0 names, with the pod and node that it runs on; nobody who cannot be meant."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import START, World, running_world, training

from ddpjob_core.api.status import DDPJobStatus, Progress, Slowest, SlowPart
from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import ProgressReport, SlowestReport, parse_slowest

NAMED = {"rank": 3, "factor": 2.1, "what": "Data"}


def report(world: World, slowest: SlowestReport | None, attempt: int = 0) -> Slowest | None:
    """What the status says after rank 0 has reported this."""
    world.progress = ProgressReport(attempt, Progress(step=50), "0.5", slowest)
    world.advance(6)
    world.settle()
    assert world.status is not None
    return world.status.slowest


def two_by_two() -> World:
    return training(procsPerNode=2)


def test_the_rank_is_named_with_its_pod_its_node_and_since_when() -> None:
    world = two_by_two()
    found = report(world, SlowestReport(3, 2.1, SlowPart.DATA))
    began = world.now
    assert found == Slowest(
        attempt=0,
        rank=3,
        ordinal=1,
        pod="digits-a0-1",
        node_name="node-1",
        factor=2.1,
        what=SlowPart.DATA,
        time=began,
    )
    found = report(world, SlowestReport(3, 2.4, SlowPart.COMPUTING))
    assert found is not None
    assert (found.factor, found.what, found.time) == (2.4, SlowPart.COMPUTING, began)
    found = report(world, SlowestReport(2, 2.4, SlowPart.COMPUTING))
    assert found is not None
    assert (found.rank, found.time) == (2, world.now)
    assert report(world, None) is None


@pytest.mark.parametrize("rank", [4, 5, 2**20, 2_559_999])
def test_a_rank_that_the_job_does_not_have_is_nobody(rank: int) -> None:
    world = two_by_two()
    assert report(world, SlowestReport(rank, 2.0, SlowPart.DATA)) is None


def test_a_new_operator_keeps_what_is_known_until_it_has_read_it() -> None:
    world = two_by_two()
    found = report(world, SlowestReport(3, 2.1, SlowPart.DATA))
    assert found is not None
    world.crash()
    world.settle()
    assert world.status is not None
    assert world.status.slowest == found
    # By its own clock, which is another one.
    world.now = START
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) == found


def test_the_next_attempt_begins_with_nobody() -> None:
    world = two_by_two()
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is not None
    world.end("digits-a0-1", 1)
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert (world.status.attempt, world.status.slowest) == (1, None)
    # What rank 0 of the attempt before has still reported.
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is None


def test_a_job_that_is_over_or_suspended_waits_for_nobody() -> None:
    world = two_by_two()
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is not None
    for name in world.live():
        world.end(name, 0)
    world.settle()
    assert world.status is not None
    assert (world.status.phase, world.status.slowest) == ("Succeeded", None)

    world = two_by_two()
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is not None
    world.spec = world.spec.model_copy(update={"suspend": True})
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is None
    world.kubelet_removes_deleted_pods()
    assert report(world, SlowestReport(3, 2.1, SlowPart.DATA)) is None


def test_a_factor_that_changes_all_the_time_is_written_every_five_seconds_at_most() -> None:
    world = two_by_two()
    report(world, SlowestReport(3, 2.1, SlowPart.DATA))
    writes = len(world.status_writes)
    for second in range(20):
        world.progress = ProgressReport(0, Progress(step=50), "0.5", SlowestReport(3, 2 + second, SlowPart.DATA))
        world.advance(1)
        world.reconcile()
    assert len(world.status_writes) - writes <= 4


def test_a_job_without_a_number_of_processes_waits_to_say_whose_rank_it_is() -> None:
    world = running_world()
    assert world.status is not None
    world.status = world.status.model_copy(update={"procs_per_node": None})
    world.progress = ProgressReport(0, Progress(step=50), "0.5", SlowestReport(1, 2.0, SlowPart.DATA))
    world.reconcile()
    assert world.status.slowest is None


@pytest.mark.parametrize(
    ("raw", "dropped"),
    [
        ({"slowest": {**NAMED, "rank": -1}}, {"slowest.rank"}),
        ({"slowest": {**NAMED, "rank": 2**31}}, {"slowest.rank"}),
        ({"slowest": {**NAMED, "rank": True}}, {"slowest.rank"}),
        ({"slowest": {**NAMED, "rank": "3"}}, {"slowest.rank"}),
        ({"slowest": {**NAMED, "factor": float("nan")}}, {"slowest.factor"}),
        ({"slowest": {**NAMED, "factor": float("inf")}}, {"slowest.factor"}),
        ({"slowest": {**NAMED, "factor": 10**400}}, {"slowest.factor"}),
        ({"slowest": {**NAMED, "factor": 0.9}}, {"slowest.factor"}),
        ({"slowest": {**NAMED, "factor": -2}}, {"slowest.factor"}),
        ({"slowest": {**NAMED, "what": "Sleeping"}}, {"slowest.what"}),
        ({"slowest": {**NAMED, "what": ["Data"]}}, {"slowest.what"}),
        ({"slowest": {"rank": 3, "factor": 2.1}}, set()),
        ({"slowest": [NAMED]}, {"slowest"}),
        ({"slowest": "rank 3"}, {"slowest"}),
        ({"slowest": None}, set()),
        ({}, set()),
    ],
    ids=str,
)
def test_what_is_not_of_its_type_and_range_names_nobody(raw: dict[str, Any], dropped: set[str]) -> None:
    fields = Fields(raw)
    assert parse_slowest(fields) is None
    assert fields.dropped == dropped


def test_a_factor_is_kept_with_as_many_digits_as_are_shown() -> None:
    named = {**NAMED, "factor": 2.123456, "more": 1}
    assert parse_slowest(Fields({"slowest": named})) == SlowestReport(3, 2.1, SlowPart.DATA)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("Data")
fields_of_one = st.dictionaries(st.sampled_from(["rank", "factor", "what"]), scalars)


@given(fields_of_one | scalars | st.lists(fields_of_one, max_size=2))
def test_whatever_a_program_reports_becomes_a_status_that_json_can_hold(value: object) -> None:
    found = parse_slowest(Fields({"slowest": value}))
    if found is None:
        return
    slowest = Slowest(attempt=0, rank=found.rank, ordinal=0, pod="p", factor=found.factor, what=found.what, time=START)
    wire = json.loads(json.dumps(DDPJobStatus(slowest=slowest).to_wire(), allow_nan=False))
    assert DDPJobStatus.model_validate(wire).slowest == slowest


def test_a_pod_that_is_gone_is_nobody_s() -> None:
    world = two_by_two()
    del world.pods["digits-a0-1"]
    world.progress = ProgressReport(0, Progress(step=50), "0.5", SlowestReport(3, 2.0, SlowPart.DATA))
    plan = world.reconcile()
    assert plan.status is not None
    assert plan.status.slowest is None


def test_only_what_rank_0_of_this_attempt_says_counts() -> None:
    world = two_by_two()
    world.progress = ProgressReport(7, Progress(step=50), "0.5", SlowestReport(3, 2.0, SlowPart.DATA))
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert world.status.slowest is None
    assert replace(world.progress, attempt=0).slowest is not None
