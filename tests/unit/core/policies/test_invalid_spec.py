"""Specs that cannot work are reported with their field."""

from typing import Any

import pytest
from world import START, World, environment_of, running_world, spec_of

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.decide import decide
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import Observed, Rejection, RejectionKind


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


@pytest.mark.parametrize("amount", [-3, "-3", -0.5, "-1e3"])
@pytest.mark.parametrize("where", ["limits", "requests"])
def test_a_negative_number_of_gpus_fails_the_job_and_names_the_field(amount: object, where: str) -> None:
    container = {"name": "trainer", "resources": {where: {"nvidia.com/gpu": amount}}}
    world = World(spec=spec_of(procsPerNode="auto", template={"spec": {"containers": [container]}}))
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    field = f"spec.template.spec.containers[0].resources.{where}[nvidia.com/gpu]"
    assert (failed.reason, failed.message) == ("InvalidSpec", f"{field}: must not be negative")
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


@pytest.mark.parametrize("name", [ObjectName("Service", "digits"), ObjectName("ConfigMap", "digits-launcher")])
def test_an_object_that_the_spec_does_not_describe_is_waited_for(name: ObjectName) -> None:
    world = World(rejections=(Rejection(RejectionKind.INVALID, name, "spec.ipFamilyPolicy: Invalid value"),))
    world.settle()
    assert world.status is not None
    assert not world.status.finished
    told = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert told is not None
    assert "spec.ipFamilyPolicy" in told.message


def test_what_is_refused_while_the_pods_run_does_not_fail_the_job() -> None:
    world = running_world()
    claim = ObjectName("PersistentVolumeClaim", "digits-checkpoints")
    world.rejections = (Rejection(RejectionKind.INVALID, claim, "spec.resources: too little"),)
    world.advance(6)
    world.settle()
    assert world.status is not None
    assert not world.status.finished


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


def test_more_processes_than_a_job_may_have_are_refused_with_both_fields() -> None:
    resources = {"requests": {"cpu": "11"}}
    world = World(
        spec=spec_of(
            nodes=10_000, procsPerNode="auto", trainer={"image": "i", "script": "t.py", "resources": resources}
        ),
    )
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message.startswith("spec.nodes x spec.procsPerNode: 10000 x 11 (auto) results in more than 100,000")
    assert not world.pods


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("template", {"spec": {"x": [[]] * 100_000}}, "values"),
        ("template", {"spec": nested(600)}, "levels deep"),
        ("template", {"spec": nested(9_996)}, "levels deep"),
        ("trainer", {"image": "i", "script": "t.py", "args": ["a" * 32_768] * 40}, "KiB of text"),
    ],
)
def test_a_field_that_holds_too_much_is_named_and_not_kept(field: str, value: Any, said: str) -> None:
    spec = {"trainer": {"image": "i", "script": "t.py"}, field: value}
    raw = {"metadata": {"namespace": "default", "name": "digits", "uid": "u", "generation": 1}, "spec": spec}
    job = job_record(raw)
    assert job is not None
    assert job.spec is not None
    assert len(job.spec.model_dump_json()) < 4096
    plan = decide(Observed(job, START))
    assert plan.status is not None
    failed = plan.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == "InvalidSpec"
    assert failed.message.startswith(f"spec.{field}: ")
    assert said in failed.message
    assert not plan.actions


def gpus(number: int, name: str = "nvidia.com/gpu") -> dict[str, object]:
    return {"image": "i", "script": "t.py", "resources": {"limits": {name: str(number)}}}


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({}, "gloo"),
        ({"trainer": gpus(2)}, "nccl"),
        ({"trainer": gpus(2), "backend": "gloo"}, "gloo"),
        ({"trainer": gpus(2), "backend": "nccl"}, "nccl"),
        ({"trainer": gpus(0)}, "gloo"),
        ({"trainer": gpus(1, "nvidia.com/gpu.shared")}, "gloo"),
        ({"trainer": gpus(1, "nvidia.com/gpu.shared"), "backend": "nccl"}, "nccl"),
        ({"trainer": gpus(1, "nvidia.com/mig-1g.5gb")}, "gloo"),
        ({"trainer": gpus(1, "amd.com/gpu")}, "nccl"),
        ({"trainer": gpus(1, "gpu.intel.com/i915")}, "gloo"),
        ({"trainer": gpus(1, "gpu.intel.com/xe")}, "gloo"),
        ({"trainer": gpus(1, "example.com/gpu")}, "nccl"),
        ({"trainer": gpus(1, "example.com/npu")}, "gloo"),
        ({"trainer": gpus(1, "nvidia.com/a100"), "backend": "nccl"}, "nccl"),
        ({"backend": "nccl", "template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}, "nccl"),
    ],
)
def test_the_backend_follows_the_gpus_unless_it_is_set(fields: dict[str, object], backend: str) -> None:
    world = World(spec=spec_of(**fields))
    world.settle()
    assert world.status is not None
    assert world.status.backend == backend
    assert environment_of(world.observe().job, world.spec)["DDPJOB_BACKEND"] == backend


@pytest.mark.parametrize("resource", ["cpu", "gpu.intel.com/xe", "example.com/rdma"])
def test_nccl_without_gpus_is_refused_before_anything_is_built(resource: str) -> None:
    world = World(spec=spec_of(backend="nccl", trainer=gpus(1, resource)))
    world.settle()
    assert world.status is not None
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message[:28]) == ("InvalidSpec", "spec.backend: nccl needs GPU")
    assert not world.pods
