"""A job that this version cannot read is left alone, and says so."""

from dataclasses import replace
from typing import Any

import pytest
from world import START, running_world

from ddpjob_core.api import ConditionType
from ddpjob_core.decide import Plan, decide
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord, Observed

SPEC = {"nodes": 2, "procsPerNode": 1, "trainer": {"image": "i", "script": "train.py"}}
METADATA = {"namespace": "default", "name": "digits", "uid": "job-uid", "resourceVersion": "5", "generation": 3}


def job(spec: dict[str, Any], status: dict[str, Any] | None = None) -> JobRecord:
    record = job_record({"metadata": METADATA, "spec": {**SPEC, **spec}, "status": status})
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("spec", "status", "reason", "named"),
    [
        ({"elastic": {}}, None, "UnknownSpec", "spec.elastic"),
        ({"launcher": "deepspeed"}, None, "UnknownSpec", "spec.launcher"),
        ({"nodes": 0}, None, "UnknownSpec", "spec.nodes"),
        ({}, {"attempt": 0, "podsCreated": True, "lease": {}}, "UnknownStatus", "status.lease"),
        ({}, {"attempt": 0, "podsCreated": True, "version": 2}, "UnknownStatus", "status.version: 2"),
    ],
)
def test_it_says_what_it_does_not_know_and_does_nothing_else(
    spec: dict[str, Any], status: dict[str, Any] | None, reason: str, named: str
) -> None:
    plan = decide(Observed(job(spec, status), START, service=None))
    assert plan.remark is not None
    assert (plan.remark.type, plan.remark.status, plan.remark.reason) == (ConditionType.UNREADABLE, "True", reason)
    assert plan.remark.message.startswith(named)
    assert [event.reason for event in plan.events] == ["Unreadable"]
    assert replace(plan, remark=None, events=()) == Plan()
    written = {**(status or {}), "conditions": [plan.remark.to_wire()]}
    assert decide(Observed(job(spec, written), START)) == Plan(), "it is said once"


def test_its_pods_may_fail_and_vanish_without_an_answer() -> None:
    world = running_world()
    assert world.status is not None
    world.end("digits-a0-1", 1)
    world.service = None
    world.remove("digits-a0-0")
    newer = job({}, {**world.status.to_wire(), "lease": {}})
    plan = decide(replace(world.observe(), job=newer))
    assert plan.actions == ()
    assert plan.status is None


def test_a_finished_job_that_cannot_be_read_is_not_written_to() -> None:
    world = running_world()
    for name in list(world.pods):
        world.end(name, 0)
    world.settle()
    assert world.status is not None
    assert decide(Observed(job({"elastic": {}}, world.status.to_wire()), START)) == Plan()


def test_a_job_that_can_be_read_again_is_taken_up_where_it_was() -> None:
    world = running_world()
    assert world.status is not None
    remark = decide(Observed(job({"elastic": {}}, world.status.to_wire()), world.now)).remark
    assert remark is not None
    world.status = world.status.model_copy(update={"conditions": [*world.status.conditions, remark]})
    world.end("digits-a0-1", 1)
    world.settle()
    assert world.status.attempt == 1
    read = world.status.condition(ConditionType.UNREADABLE)
    assert read is not None
    assert (read.status, read.reason) == ("False", "Read")
