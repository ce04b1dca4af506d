"""The example of a policy that limits how many nodes a job may have, by namespace."""

from collections.abc import Iterator

import pytest

from tests.apiserver.controlplane import ROOT, ApiError, ControlPlane, Json, path_of, wait_for
from tests.apiserver.example_policies import applied, refusal

POLICY = ROOT / "manifests/policies/most-nodes.yaml"


@pytest.fixture(scope="module")
def limited(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace in which the policy holds."""
    namespace = control_plane.new_namespace()
    with applied(control_plane, POLICY, namespace, job(namespace, nodes=9)):
        yield namespace


def job(namespace: str, name: str = "a", **spec: object) -> Json:
    return {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"trainer": {"image": "i", "script": "t.py"}, **spec},
    }


def test_a_job_has_at_most_as_many_nodes_as_its_namespace_says(control_plane: ControlPlane, limited: str) -> None:
    admin = control_plane.admin
    assert refusal(admin, job(limited)) == refusal(admin, job(limited, nodes=8)) == ""
    said = f"spec.nodes: the job asks for 9 nodes, and a job of namespace {limited} may have 8"
    assert said in refusal(admin, job(limited, nodes=9))
    assert said in refusal(admin, job(limited, nodes=2, elastic={"minNodes": 1, "maxNodes": 9}))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": limited}}
    admin.patch(path_of(namespace), {"metadata": {"annotations": {"ddpjob.dev/most-nodes": "20"}}})
    wait_for(lambda: refusal(admin, job(limited, nodes=20)) == "", "the namespace's own number to count")
    large = admin.create(job(limited, nodes=20))
    admin.patch(path_of(namespace), {"metadata": {"annotations": {"ddpjob.dev/most-nodes": "10"}}})
    wait_for(lambda: refusal(admin, job(limited, "b", nodes=20)), "the smaller number to count")
    # It may be suspended and made smaller, but not grow: neither by a change of the job nor by its scale.
    admin.patch(path_of(large), {"spec": {"suspend": True}})
    admin.patch(path_of(large), {"spec": {"nodes": 15}})
    for path, change in ((path_of(large), {"nodes": 16}), (f"{path_of(large)}/scale", {"replicas": 16})):
        with pytest.raises(ApiError, match="asks for 16 nodes"):
            admin.patch(path, {"spec": change})
    admin.patch(f"{path_of(large)}/scale", {"spec": {"replicas": 4}})
    admin.delete(path_of(large))
