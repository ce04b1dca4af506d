"""The policy with strictReferences: a user must be allowed to get the Secrets and claims that a job names."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.chart.helm import kustomized
from tests.apiserver.controlplane import ControlPlane, Json, path_of, wait_for
from tests.apiserver.rights import CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES
from tests.apiserver.tenants import Tenant, containers, new_tenant, volume

# Of this process: another one that runs other tests of this file has a policy and namespaces of its own.
OWN = uuid.uuid4().hex[:8]
POLICY = f"ddpjob-pods-strict-{OWN}"
LABELS = {"test-strict-references": OWN}
KNOWN = [f"s{number}" for number in range(12)]
TOO_MANY = "the job uses more than 8 Secrets and claims"


def may_get(resource: str, *names: str) -> Json:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"], **({"resourceNames": names} if names else {})}


@dataclass(frozen=True)
class Users:
    """Four of them, in namespaces in which the policy is the strict one."""

    nothing: Tenant
    """May get none."""
    some: Tenant
    """May get the Secrets `KNOWN` and the claim `c`."""
    everything: Tenant
    """May get all Secrets and claims."""
    secrets: Tenant
    """May get all Secrets."""


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, assets: Path) -> Iterator[Users]:
    built = {each["kind"]: each for each in kustomized(assets / "kubectl", "overlays/strict-references")}
    policy, binding = built["ValidatingAdmissionPolicy"], built["ValidatingAdmissionPolicyBinding"]
    for each in (policy, binding):
        # Other tests use the same control plane, and their users have no such rights.
        each["metadata"]["name"] = POLICY
        control_plane.admin.apply(each)
        each["spec"]["policyName"] = POLICY
    binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": LABELS}}
    control_plane.admin.apply(binding)
    rights: list[list[Json]] = [
        [],
        [may_get("secrets", *KNOWN), may_get("persistentvolumeclaims", "c")],
        [may_get("secrets"), may_get("persistentvolumeclaims")],
        [may_get("secrets")],
    ]
    made = [new_tenant(control_plane, CHANGE_JOBS, CREATE_PODS, *more, labels=LABELS) for more in rights]
    found = Users(*made)
    probe = found.nothing.job(trainer=variables("a"))
    wait_for(lambda: found.nothing.refusal(probe), "the strict policy")
    wait_for(lambda: not found.some.refusal(found.some.job(trainer=variables("s1"))), "the right to get a Secret")
    yield found
    for each in (binding, policy):
        control_plane.admin.delete(path_of(each))


def variable(secret: str, number: int = 0) -> Json:
    return {"name": f"A{number}", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}


def variables(*secrets: str) -> Json:
    """A trainer with one variable from each Secret."""
    return {"env": [variable(secret, number) for number, secret in enumerate(secrets)]}


def new_claim(**source: Any) -> Json:
    return volume(ephemeral={"volumeClaimTemplate": {"spec": source}})


TEMPLATES: dict[str, tuple[Json, str]] = {
    "a sidecar's variable": (containers(env=[variable("s")]), "secrets/s"),
    "an init container's variables": (
        {"spec": {"initContainers": [{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}},
        "secrets/s",
    ),
    "the template's trainer": ({"spec": {"containers": [{"name": "trainer", "env": [variable("s")]}]}}, "secrets/s"),
    "a volume": (volume(secret={"secretName": "s"}), "secrets/s"),
    "projected files": (
        volume(projected={"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}),
        "secrets/s",
    ),
    "a CSI volume": (volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}}), "secrets/s"),
    "pulling images": ({"spec": {"imagePullSecrets": [{"name": "s"}]}}, "secrets/s"),
    "a claim": (volume(persistentVolumeClaim={"claimName": "d"}), "persistentvolumeclaims/d"),
    "a copy of a claim": (
        new_claim(dataSource={"kind": "PersistentVolumeClaim", "name": "d"}),
        "persistentvolumeclaims/d",
    ),
    "a copy of a claim by its new field": (
        new_claim(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "d"}),
        "persistentvolumeclaims/d",
    ),
}


@pytest.mark.parametrize(("template", "named"), TEMPLATES.values(), ids=list(TEMPLATES))
def test_what_the_template_names_must_be_allowed(users: Users, template: Json, named: str) -> None:
    for user in (users.nothing, users.some):
        said = user.refusal(user.job(template))
        who = f"system:serviceaccount:{user.namespace}:tenant"
        assert f"the job uses {named}, which {who} may not get in namespace {user.namespace}" in said
    assert users.everything.refusal(users.everything.job(template)) == ""


@pytest.mark.parametrize("trainer", [variables("other"), {"envFrom": [{"secretRef": {"name": "other"}}]}])
def test_what_the_trainer_names_must_be_allowed(users: Users, trainer: Json) -> None:
    assert "the job uses secrets/other" in users.some.refusal(users.some.job(trainer=trainer))
    assert users.secrets.refusal(users.secrets.job(trainer=trainer)) == ""


def test_the_claim_for_checkpoints_must_be_allowed_also_the_one_that_an_earlier_job_of_the_name_left(
    users: Users,
) -> None:
    assert "persistentvolumeclaims/other" in users.some.refusal(users.some.job(checkpoint={"claimName": "other"}))
    assert users.some.refusal(users.some.job(checkpoint={"claimName": "c"})) == ""
    job = users.some.job(checkpoint={"size": "1Gi"})
    assert f"persistentvolumeclaims/{job['metadata']['name']}-checkpoints" in users.some.refusal(job)
    assert users.everything.refusal(users.everything.job(checkpoint={"size": "1Gi"})) == ""


def test_eight_names_are_checked_one_by_one_and_a_ninth_needs_the_permission_to_get_all(users: Users) -> None:
    some = users.some
    assert some.refusal(some.job(trainer=variables(*KNOWN[:8]))) == ""
    assert TOO_MANY in some.refusal(some.job(trainer=variables(*KNOWN[:9])))
    # The last of the eight counts like the first.
    assert "the job uses secrets/other" in some.refusal(some.job(trainer=variables(*KNOWN[:7], "other")))
    assert users.secrets.refusal(users.secrets.job(trainer=variables(*KNOWN))) == ""
    claims = {
        "spec": {"volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(9)]}
    }
    assert "may not get" in users.secrets.refusal(users.secrets.job(claims))
    assert users.everything.refusal(users.everything.job(claims, variables(*KNOWN))) == ""


def test_a_ninth_that_is_a_claim_needs_the_permission_to_get_all_claims(users: Users) -> None:
    secrets = users.secrets
    claim = volume(persistentVolumeClaim={"claimName": "c"})
    assert TOO_MANY in secrets.refusal(secrets.job(claim, variables(*KNOWN)))
    assert users.everything.refusal(users.everything.job(claim, variables(*KNOWN))) == ""


def test_a_name_that_is_used_often_counts_once(users: Users) -> None:
    often = [variable(KNOWN[number % 8], number) for number in range(200)]
    template = {"spec": {"volumes": [{"name": f"v{n}", "secret": {"secretName": KNOWN[n % 8]}} for n in range(20)]}}
    assert users.some.refusal(users.some.job(template, {"env": often})) == ""


@pytest.mark.parametrize(
    "template",
    [
        containers(env=[variable("s1")] * 2_000),
        {"spec": {"imagePullSecrets": [{"name": "s1"}] * 2_000}},
    ],
    ids=["variables", "image pull secrets"],
)
def test_more_names_than_can_be_counted_need_the_permission_to_get_all(users: Users, template: Json) -> None:
    assert TOO_MANY in users.some.refusal(users.some.job(template))
    assert users.everything.refusal(users.everything.job(template)) == ""


def test_the_right_to_reach_beyond_a_container_is_not_the_right_to_read_secrets(
    control_plane: ControlPlane, users: Users
) -> None:
    assert users.nothing.refusal(users.nothing.job(trainer=variables("s1")))
    other = new_tenant(control_plane, CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES, labels=LABELS)
    assert other.refusal(other.job({"spec": {"hostPID": True}})) == ""
    many = {"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s1"}}] * 2_000}}
    assert TOO_MANY in other.refusal(other.job(many))
    assert "the job uses secrets/s1" in other.refusal(other.job({"spec": {"hostPID": True}}, variables("s1")))


@pytest.mark.parametrize(
    "template",
    [
        containers(env=[None, {"valueFrom": None}, {"valueFrom": {"secretKeyRef": None}}], envFrom=None),
        containers(env=[{"valueFrom": {"secretKeyRef": {"name": None}}}], envFrom=[{"secretRef": []}, "x"]),
        containers(env={"a": 1}, envFrom="x"),
        {
            "spec": {
                "volumes": [{"secret": None}, {"csi": [1]}, {"secret": {"secretName": 7}}],
                "imagePullSecrets": [None],
            }
        },
        {"spec": {"volumes": [{"projected": {"sources": [{"secret": None}]}}], "imagePullSecrets": {"name": "s"}}},
        {"spec": {"volumes": [{"ephemeral": None}, {"ephemeral": {"volumeClaimTemplate": {"spec": []}}}]}},
    ],
)
def test_what_names_nothing_needs_nothing(users: Users, template: Json) -> None:
    assert users.nothing.refusal(users.nothing.job(template)) == ""
