"""The example of a policy that limits which labels the pods of a job may have, by namespace."""

from collections.abc import Iterator

import pytest

from tests.apiserver.controlplane import ROOT, ApiError, ControlPlane, Json, path_of, wait_for
from tests.apiserver.example_policies import applied, refusal

POLICY = ROOT / "manifests/policies/pod-labels.yaml"


@pytest.fixture(scope="module")
def limited(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace in which the policy holds."""
    namespace = control_plane.new_namespace()
    with applied(control_plane, POLICY, namespace, job(namespace, app="shop")):
        yield namespace


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
