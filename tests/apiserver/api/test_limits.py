"""The example of limits for namespaces, as the API server itself applies it."""

import http
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ddpjob_core.api.resources import JOBS
from tests.apiserver.controlplane import ROOT, ApiError, Client, ControlPlane, Json, wait_for

LIMITS: Final = ROOT / "manifests/policies/limits"
NAMES = itertools.count()


@dataclass(frozen=True)
class Place:
    """A namespace with limits: 8 nodes and 32 GPUs for each job."""

    admin: Client
    namespace: str

    def job(self, nodes: int = 1, trainer: Json | None = None, **spec: Any) -> Json:
        return {
            "apiVersion": "ddpjob.dev/v1alpha1",
            "kind": "DDPJob",
            "metadata": {"name": f"job-{next(NAMES)}", "namespace": self.namespace},
            "spec": {"nodes": nodes, "trainer": {"image": "i", "script": "s", **(trainer or {})}, **spec},
        }

    def refusal(self, nodes: int = 1, trainer: Json | None = None, **spec: Any) -> str:
        """Why the API server refuses a job, "" where it does not."""
        try:
            self.admin.create(self.job(nodes, trainer, **spec), dryRun="All")
        except ApiError as error:
            if error.code != http.HTTPStatus.FORBIDDEN:
                raise
            return error.message
        return ""

    def change(self, job: Json, spec: Json, *, subresource: str | None = None) -> Json:
        name = job["metadata"]["name"]
        return self.admin.patch(JOBS.path(self.namespace, name, subresource), {"spec": spec})


def documents(file: Path) -> list[Json]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def having(resource: str, count: object) -> Json:
    return {"resources": {"limits": {resource: count}}}


def pod(**containers: Json) -> Json:
    return {"spec": {"containers": [{"name": name, **fields} for name, fields in containers.items()]}}


@pytest.fixture(scope="module")
def place(control_plane: ControlPlane) -> Place:
    for file in (LIMITS / "policy.yaml", LIMITS / "small.yaml"):
        for manifest in documents(file):
            control_plane.admin.apply(manifest)
    found = Place(control_plane.admin, control_plane.new_namespace())
    control_plane.admin.patch(
        f"/api/v1/namespaces/{found.namespace}", {"metadata": {"labels": {"ddpjob.dev/limits": "small"}}}
    )
    # A policy does not hold yet in the moment in which it is created, nor do its numbers.
    wait_for(lambda: "at most 8 nodes" in found.refusal(9) and found.refusal() == "", "the limits to hold")
    return found


GPUS = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.5gb",
    "amd.com/gpu",
    "gpu.intel.com/xe",
    "example.com/gpu",
)


def test_the_number_of_nodes_is_limited_also_that_which_an_elastic_job_may_grow_to(place: Place) -> None:
    assert place.refusal(8) == ""
    smallest = place.job()
    del smallest["spec"]["nodes"]
    assert place.admin.create(smallest, dryRun="All")["spec"]["nodes"] == 1
    said = place.refusal(9)
    assert f"spec.nodes is 9: jobs in namespace {place.namespace} may have at most 8 nodes" in said
    assert place.refusal(2, elastic={"maxNodes": 8}) == ""
    assert "spec.elastic.maxNodes is 9: jobs" in place.refusal(2, elastic={"maxNodes": 9})


@pytest.mark.parametrize("resource", GPUS)
def test_gpus_of_all_nodes_together_are_limited(place: Place, resource: str) -> None:
    assert place.refusal(8, having(resource, 4)) == ""
    said = place.refusal(8, having(resource, "5"))
    assert "spec.nodes is 8 and each node has 5 GPUs: jobs in namespace" in said
    assert "may have at most 32 GPUs" in said


def test_gpus_are_counted_wherever_a_pod_has_them(place: Place) -> None:
    assert "each node has 5 GPUs" in place.refusal(8, template=pod(trainer=having("nvidia.com/gpu", 5)))
    sidecar = pod(watcher=having("nvidia.com/gpu", 1))
    assert "each node has 5 GPUs" in place.refusal(8, having("nvidia.com/gpu", 4), template=sidecar)
    first = {"spec": {"initContainers": [{"name": "first", **having("nvidia.com/gpu", 5)}]}}
    assert "each node has 5 GPUs" in place.refusal(8, template=first)
    mixed = {
        "resources": {"limits": {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.5gb": 1, "memory": "64Gi", "cpu": "1500m"}}
    }
    assert "each node has 5 GPUs" in place.refusal(8, mixed)
    assert "each node has 1000 GPUs" in place.refusal(1, having("nvidia.com/gpu", "1k"))


def test_what_the_trainer_sets_replaces_what_the_template_sets_for_it(place: Place) -> None:
    assert place.refusal(8, having("nvidia.com/gpu", 4), template=pod(trainer=having("nvidia.com/gpu", 8))) == ""
    assert "each node has 8" in place.refusal(
        8, having("amd.com/gpu", 4), template=pod(trainer=having("nvidia.com/gpu", 4))
    )


@pytest.mark.parametrize("template", [{"spec": {"containers": {}}}, {"spec": ["x"]}, pod(trainer={"resources": 4})])
def test_a_template_of_a_wrong_type_has_no_gpus(place: Place, template: Json) -> None:
    assert place.refusal(8, template=template) == ""


def test_a_change_is_limited_like_a_creation_and_a_job_from_before_the_limit_can_be_suspended(
    place: Place, control_plane: ControlPlane
) -> None:
    small = place.admin.create(place.job(4, having("nvidia.com/gpu", 8), suspend=True))
    with pytest.raises(ApiError, match=r"spec\.nodes is 5 and each node has 8 GPUs"):
        place.change(small, {"nodes": 5})
    with pytest.raises(ApiError, match=r"spec\.nodes is 9: jobs"):
        place.change(small, {"nodes": 9})
    with pytest.raises(ApiError, match=r"which a change of the scale does not show: change spec\.nodes"):
        place.change(small, {"replicas": 5}, subresource="scale")
    with pytest.raises(ApiError, match=r"spec\.nodes is 9: jobs"):
        place.change(small, {"replicas": 9}, subresource="scale")
    assert place.change(small, {"replicas": 3}, subresource="scale")["spec"]["replicas"] == 3
    assert place.change(small, {"nodes": 4})["spec"]["nodes"] == 4
    elsewhere = control_plane.new_namespace()
    large = place.admin.create({**place.job(20), "metadata": {"name": "large", "namespace": elsewhere}})
    limited = {"metadata": {"labels": {"ddpjob.dev/limits": "small"}}}
    place.admin.patch(f"/api/v1/namespaces/{elsewhere}", limited)
    before = Place(place.admin, elsewhere)
    wait_for(lambda: before.refusal(9), "the limits to hold there")
    for suspend in (True, False):
        assert before.change(large, {"suspend": suspend})["spec"]["suspend"] is suspend


def test_the_number_of_jobs_and_the_gpus_of_all_are_limited_by_a_quota(
    control_plane: ControlPlane, namespace: str
) -> None:
    admin = control_plane.admin
    (quota,) = documents(LIMITS / "quota.yaml")
    quota["metadata"]["namespace"] = namespace
    assert quota["spec"]["hard"]["count/ddpjobs.ddpjob.dev"] == "20"
    quota["spec"]["hard"]["count/ddpjobs.ddpjob.dev"] = "2"
    admin.create(quota)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/ddpjob-limits"
    wait_for(lambda: (admin.get(path).get("status") or {}).get("hard"), "the quota to count")
    place = Place(admin, namespace)
    for _ in range(2):
        admin.create(place.job())
    with pytest.raises(ApiError, match=r"exceeded quota: ddpjob-limits, .*count/ddpjobs\.ddpjob\.dev=2"):
        admin.create(place.job())
