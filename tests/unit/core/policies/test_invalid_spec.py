"""Specs that cannot work are reported with their field."""

import pytest
from world import World, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import Rejection, RejectionKind


def test_a_template_that_cannot_work_fails_the_job_and_names_the_field() -> None:
    world = World(
        spec=spec_of(template={"spec": {"containers": [{"name": "trainer", "env": [{"name": "RANK", "value": "0"}]}]}})
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == "InvalidSpec"
    assert "spec.template.spec.containers[0].env[RANK]" in failed.message
    assert not world.pods


def test_a_pod_that_the_server_calls_invalid_fails_the_job_with_the_servers_words() -> None:
    world = World()
    world.rejections = (
        Rejection(RejectionKind.INVALID, ObjectName("Pod", "digits-a0-0"), 'unknown field "spec.volums"'),
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert 'unknown field "spec.volums"' in failed.message


def test_a_request_that_comes_to_too_many_processes_is_refused_before_anything_is_built() -> None:
    resources = {"requests": {"cpu": "64Gi"}}
    world = World(
        spec=spec_of(procsPerNode="auto", trainer={"image": "i", "script": "t.py", "resources": resources}),
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message.startswith("spec.procsPerNode: auto results in more than 256")
    assert not world.pods


def gpus(number: int) -> dict[str, object]:
    return {"image": "i", "script": "t.py", "resources": {"limits": {"nvidia.com/gpu": str(number)}}}


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({}, "gloo"),
        ({"trainer": gpus(2)}, "nccl"),
        ({"trainer": gpus(2), "backend": "gloo"}, "gloo"),
        ({"trainer": gpus(2), "backend": "nccl"}, "nccl"),
        ({"trainer": gpus(0)}, "gloo"),
        ({"backend": "nccl", "template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}, "nccl"),
    ],
)
def test_the_backend_follows_the_gpus_unless_it_is_set(fields: dict[str, object], backend: str) -> None:
    world = World(spec=spec_of(**fields))
    world.settle()
    assert world.status is not None
    assert world.status.backend == backend
    pod = build_pod(world.observe().job, world.spec, 0, 0)
    assert {"name": "DDPJOB_BACKEND", "value": backend} in pod["spec"]["containers"][0]["env"]


def test_nccl_without_gpus_is_refused_before_anything_is_built() -> None:
    world = World(spec=spec_of(backend="nccl"))
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message[:28]) == ("InvalidSpec", "spec.backend: nccl needs GPU")
    assert not world.pods
