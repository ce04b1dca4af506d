"""What comes from a newer version of the API is noticed, wherever it stands."""

import json
from typing import Any

import pytest
from world import running_world

from ddpjob_core.api.status import STATUS_VERSION
from ddpjob_core.api.unknown import unknown_in_spec, unknown_in_status

TRAINER = {"image": "i", "script": "train.py"}


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({}, None),
        ({"launcher": "torchrun", "template": {"spec": {"anything": {"goes": "here"}}}}, None),
        ({"trainer": {**TRAINER, "resources": {"limits": {"example.com/new": 1}}}}, None),
        ({"trainer": {**TRAINER, "securityContext": {"anything": True}}}, None),
        ({"template": {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}}}, None),
        ({"quota": {"minNodes": 1}}, "spec.quota"),
        ({"launcher": "deepspeed"}, "spec.launcher: deepspeed"),
        (
            {"restart": {"rules": [{"action": "Fail", "exitCodes": [2]}, {"action": "Pause"}]}},
            "spec.restart.rules[1].action: Pause",
        ),
        (
            {"trainer": {**TRAINER, "env": [{"name": "A", "valueFrom": {"fileRef": {}}}]}},
            "spec.trainer.env[0].valueFrom.fileRef",
        ),
    ],
)
def test_a_field_or_value_of_a_spec_that_is_not_known_is_named(fields: dict[str, Any], unknown: str | None) -> None:
    assert unknown_in_spec({"nodes": 2, "trainer": TRAINER, **fields}) == unknown


def test_what_this_version_writes_it_knows() -> None:
    world = running_world()
    world.end("digits-a0-1", 1)
    world.settle()
    assert world.status is not None
    assert unknown_in_status(json.loads(json.dumps(world.status.to_wire()))) is None


@pytest.mark.parametrize(
    ("status", "unknown"),
    [
        ({"elasticNodes": 3}, "status.elasticNodes"),
        ({"phase": "Queued"}, "status.phase: Queued"),
        (
            {"conditions": [{"type": "Failed", "status": "False"}, {"type": "Queued"}]},
            "status.conditions[1].type: Queued",
        ),
        ({"restarts": {"counted": 1, "delegated": 2}}, "status.restarts.delegated"),
        ({"version": STATUS_VERSION + 1}, f"status.version: {STATUS_VERSION + 1}"),
        ({"attempt": "one", "progress": {"step": "many"}, "conditions": [7]}, None),
        ("Running", None),
        (None, None),
    ],
)
def test_a_field_value_or_version_of_a_status_that_is_not_known_is_named(status: object, unknown: str | None) -> None:
    assert unknown_in_status(status) == unknown


def test_what_is_named_is_one_line_of_bounded_length() -> None:
    found = unknown_in_spec({"trainer": TRAINER, "x\x1b[31m\n" * 1000: 1})
    assert found is not None
    assert found.isprintable()
    assert len(found) <= 253
