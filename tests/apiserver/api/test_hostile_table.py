"""Hostile jobs that the API server judges, as far as no other test has them: docs/security.md names a test for each."""

from typing import Any

import pytest

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.checkpoint import build_claim
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.observations.observed import JobRecord
from tests.apiserver.controlplane import ROOT, ApiError, ControlPlane, Json
from tests.apiserver.documents import objects_of
from tests.apiserver.rights import CHANGE_JOBS, CREATE_PODS
from tests.apiserver.tenants import TRAINER, Tenant, containers, new_tenant, volume

SECRET = {"name": "not-mine", "key": "k"}
PAGE = ROOT / "docs/security.md"


@pytest.fixture(scope="module")
def allowed(control_plane: ControlPlane) -> Tenant:
    """May create jobs and pods, and get neither Secrets nor claims."""
    return new_tenant(control_plane, CHANGE_JOBS, CREATE_PODS)


def command(*args: str) -> Json:
    return {"trainer": {"image": "i", "command": ["x"], "args": list(args)}}


HARMLESS: dict[str, Json] = {
    "a variable from a Secret": {"trainer": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": SECRET}}]}},
    "variables from a Secret": {"trainer": {"envFrom": [{"secretRef": {"name": "not-mine"}}]}},
    "a sidecar's variables": {"template": containers(envFrom=[{"secretRef": {"name": "not-mine"}}])},
    "a Secret as files": {"template": volume(secret={"secretName": "not-mine"})},
    "a claim for checkpoints": {"checkpoint": {"claimName": "not-mine"}},
    "a script above its folder": {"trainer": {"script": "../../etc/passwd"}},
    "a script like a command": {"trainer": {"script": "$(rm -rf /); `reboot`"}},
    "arguments with NUL": {"trainer": {"args": ["a\0b"]}},
    "a million characters of arguments": {"trainer": {"args": ["a" * 32_768] * 32}},
    "labels of another Service": {"template": {"metadata": {"labels": {"app": "shop"}}}},
}


@pytest.mark.parametrize("fields", HARMLESS.values(), ids=list(HARMLESS))
def test_what_concerns_only_the_jobs_own_pods_is_accepted_with_all_that_is_made_of_it(
    allowed: Tenant, fields: dict[str, Any]
) -> None:
    job = allowed.admitted(allowed.job(**fields))
    assert allowed.pod(job)
    record = _record(allowed, job)
    assert allowed.admin.create(build_launcher(record, _spec(job)), dryRun="All")


WRONG: dict[str, tuple[Json, str]] = {
    "a module like a command": ({"trainer": {"image": "i", "module": "os;rm -rf"}}, r"spec\.trainer\.module"),
    "a module above its folder": ({"trainer": {"image": "i", "module": "..os"}}, r"spec\.trainer\.module"),
    "an amount of 8,000 digits": (
        {"trainer": {**TRAINER, "resources": {"limits": {"cpu": "9" * 8_000 + "x"}}}},
        r"spec\.trainer\.resources\.limits",
    ),
    "10,000 nodes of 256 processes": ({"trainer": TRAINER, "nodes": 10_000, "procsPerNode": 256}, r"spec\.nodes"),
}


@pytest.mark.parametrize(("spec", "named"), WRONG.values(), ids=list(WRONG))
def test_what_a_schema_can_tell_is_refused_with_its_field(allowed: Tenant, spec: Json, named: str) -> None:
    with pytest.raises(ApiError, match=named):
        allowed.admitted({**allowed.job(), "spec": spec})


def test_labels_of_the_operator_stay_its_own(allowed: Tenant) -> None:
    labels = {"app.kubernetes.io/managed-by": "me", "team": "a"}
    job = allowed.admitted(allowed.job({"metadata": {"labels": labels}}))
    found = allowed.pod(job)["metadata"]["labels"]
    assert (found["app.kubernetes.io/managed-by"], found["team"]) == ("ddpjob", "a")


def test_a_claim_of_a_size_that_no_disk_has_is_the_quotas_matter(allowed: Tenant) -> None:
    job = allowed.admitted(allowed.job(checkpoint={"size": "1000Ei", "retain": "Retain"}))
    checkpoint = _spec(job).checkpoint
    assert checkpoint is not None
    claim = build_claim(_record(allowed, job), checkpoint)
    assert claim is not None
    assert allowed.admin.create(claim, dryRun="All")


def test_the_objects_on_the_page_are_accepted(allowed: Tenant) -> None:
    assert {each["kind"] for each in objects_of(PAGE)} == {"Policy", "Role", "ResourceQuota", "NetworkPolicy"}
    # The API server reads an audit policy from a file: test_audit_policy starts one with it.
    objects = [each for each in objects_of(PAGE) if each["kind"] != "Policy"]
    for each in objects:
        each["metadata"]["namespace"] = allowed.namespace
        allowed.admin.create(each, dryRun="All")


def _spec(job: Json) -> DDPJobSpec:
    return DDPJobSpec.model_validate(job["spec"])


def _record(user: Tenant, job: Json) -> JobRecord:
    name = job["metadata"]["name"]
    return JobRecord(user.namespace, name, "uid", "1", 1, deleting=False, spec=_spec(job))
