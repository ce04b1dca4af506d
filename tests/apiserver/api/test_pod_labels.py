"""The example of a policy that limits which labels the pods of a job may have, by namespace."""

from collections.abc import Iterator

import pytest
import yaml

from tests.apiserver.controlplane import ROOT, ApiError, Client, ControlPlane, Json, path_of, wait_for

POLICY = ROOT / "manifests/policies/pod-labels.yaml"


@pytest.fixture(scope="module")
def limited(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace in which the policy holds, and in no other one: other tests use the same control plane."""
    namespace = control_plane.new_namespace()
    policy, binding = yaml.safe_load_all(POLICY.read_text())
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": selector}
    for manifest in (policy, binding):
        control_plane.admin.apply(manifest)
    wait_for(lambda: refusal(control_plane.admin, job(namespace, app="shop")), "the policy to hold")
    yield namespace
    for manifest in (binding, policy):
        control_plane.admin.delete(path_of(manifest))


def job(namespace: str, **labels: object) -> Json:
    return {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {
            "trainer": {"image": "i", "script": "t.py"},
            "suspend": True,
            **({"template": {"metadata": {"labels": labels}}} if labels else {}),
        },
    }


def refusal(admin: Client, manifest: Json) -> str:
    try:
        admin.create(manifest, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def test_labels_that_are_not_allowed_are_named_and_refused(control_plane: ControlPlane, limited: str) -> None:
    admin = control_plane.admin
    said = f"spec.template.metadata.labels: pods of jobs of namespace {limited} may not have the label app: leave"
    assert said in refusal(admin, job(limited, app="shop"))
    assert refusal(admin, job(limited)) == ""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": limited}}
    admin.patch(path_of(namespace), {"metadata": {"annotations": {"ddpjob.dev/pod-labels": "team,queue"}}})
    wait_for(lambda: refusal(admin, job(limited, team="x", queue="y")) == "", "the namespace's own list to count")
    assert said in refusal(admin, job(limited, team="x", app="shop"))
    # One that has them already may be resumed, and get no more.
    made = admin.create(job(limited, team="x"))
    admin.patch(path_of(namespace), {"metadata": {"annotations": {"ddpjob.dev/pod-labels": "queue"}}})
    wait_for(lambda: refusal(admin, job(limited, team="x")), "the shorter list to count")
    for suspend in (False, True):
        admin.patch(path_of(made), {"spec": {"suspend": suspend}})
    with pytest.raises(ApiError, match="may not have the label"):
        admin.patch(path_of(made), {"spec": {"template": {"metadata": {"labels": {"app": "shop"}}}}})


@pytest.mark.parametrize(
    "template", [{}, {"metadata": None}, {"metadata": {"labels": [1]}}, {"metadata": "x"}], ids=str
)
def test_a_template_without_labels_is_none_of_the_policys_business(
    control_plane: ControlPlane, limited: str, template: Json
) -> None:
    manifest = job(limited)
    manifest["spec"]["template"] = template
    assert "may not have the label" not in refusal(control_plane.admin, manifest)
    assert "ddpjob-pod-labels" not in refusal(control_plane.admin, manifest)
