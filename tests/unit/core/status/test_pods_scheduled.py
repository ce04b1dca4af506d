"""What the condition PodsScheduled says of pods that have a node."""

from typing import Any

import pytest
from world import World, running_world

from ddpjob_core.api import ConditionType
from ddpjob_core.api.status import DDPJobStatus

ROOT = {"securityContext": {"runAsUser": 0}}


def containers(*fields: dict[str, Any], **pods: Any) -> dict[str, Any]:
    names = ("trainer", "side", "other")
    template = [{"name": name, "image": "i", **each} for name, each in zip(names, fields, strict=False)]
    return {"template": {"spec": {"containers": template, **pods}}}


def said(world: World) -> str:
    assert world.status is not None
    found = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert found is not None
    assert found.status == "True"
    return found.message


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ""),
        (containers({"securityContext": {"runAsUser": 5}}), ""),
        (containers({"securityContext": {"runAsNonRoot": True}}), ""),
        ({"trainer": {"image": "i", "script": "t.py", **ROOT}}, "container trainer runs"),
        (containers({}, ROOT), "container side runs"),
        (containers({}, {}, **ROOT), "containers trainer, side run"),
        (containers({}, {"securityContext": {"runAsUser": 7}}, **ROOT), "container trainer runs"),
        (containers(ROOT, securityContext={"runAsUser": 7}), "container trainer runs"),
        # Its privileges would be nothing to the default user.
        (containers({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}), "container trainer runs"),
        # What spec.trainer adds is merged with what the template has.
        (
            {
                **containers({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}),
                "trainer": {"image": "i", "script": "t.py", "securityContext": {"capabilities": {"drop": ["ALL"]}}},
            },
            "container trainer runs",
        ),
        (containers({}, initContainers=[{"name": "first", "image": "i", **ROOT}]), "container first runs"),
    ],
)
def test_containers_that_run_as_root_are_named(fields: dict[str, Any], named: str) -> None:
    message = said(running_world(**fields))
    assert message.endswith(f"; {named} as root, as the job asks" if named else "pods have a node")


def test_of_a_job_without_the_defaults_only_what_it_says_itself_counts() -> None:
    world = running_world(**containers({"securityContext": {"privileged": True}}))
    assert "as root" in said(world)
    assert world.status is not None
    fields = world.status.model_dump() | {"pod_security": None}
    world.status = DDPJobStatus.model_validate(fields)
    world.advance(6)
    world.settle()
    assert "as root" not in said(world)
