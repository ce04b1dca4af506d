"""Releases of the chart in a real API server, from the package that a registry holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.apiserver.chart.helm import CHART, DEPLOYMENT, Helm, HelmError, kustomized
from tests.apiserver.chart.values import EVERYTHING, ONCE
from tests.apiserver.controlplane import NAMESPACE, ApiError, Client, ControlPlane, Json, path_of, wait_for

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
LEASES = "coordination.k8s.io/leases"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
MOST_BYTES_OF_A_RELEASE = 1024 * 1024
"""What fits into a Secret."""

Install: TypeAlias = Callable[..., str]


@pytest.fixture
def package(helm: Helm, tmp_path: Path) -> Path:
    """What `helm push` sends to a registry."""
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (made,) = tmp_path.glob("*.tgz")
    return made


@pytest.fixture
def install(on_cluster: Helm, package: Path) -> Install:
    """Install a release of the package, or upgrade it."""

    def run(
        release: str = "ddpjob",
        namespace: str = NAMESPACE,
        values: dict[str, Any] | None = None,
        *options: str,
        command: str = "install",
    ) -> str:
        return on_cluster.run(command, release, str(package), "--namespace", namespace, *options, values=values or {})

    return run


def a_job(admin: Client, namespace: str) -> str:
    """The path of a job that is there once the API server knows what jobs are."""
    spec = {"trainer": {"image": "i", "script": "train.py"}}
    metadata = {"name": "digits", "namespace": namespace}
    job = {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "metadata": metadata, "spec": spec}

    def created() -> bool:
        try:
            admin.create(job)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    wait_for(created, "the definition of DDPJobs to be served")
    return path_of(job)


def may(admin: Client, account: str, verb: str, resource: str, namespace: str, *, name: str = "") -> bool:
    """Whether an operator's service account (NAMESPACE:NAME) may do something, to all objects or to that one."""
    group, _, plural = resource.rpartition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "namespace": namespace, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": f"system:serviceaccount:{account}", "resourceAttributes": asked},
    }
    return bool(admin.create(review)["status"]["allowed"])


def replicas(admin: Client) -> int:
    count: int = admin.get(DEPLOYMENT)["spec"]["replicas"]
    return count


def test_a_release_is_upgraded_in_every_value_rolled_back_and_uninstalled_and_the_jobs_stay_until_they_are_given_up(
    on_cluster: Helm, install: Install, admin: Client, cluster: ControlPlane
) -> None:
    notes = install()
    assert "helm uninstall` keeps the definition" in notes
    job = a_job(admin, cluster.new_namespace())
    (secret,) = admin.items(f"/api/v1/namespaces/{NAMESPACE}/secrets", labelSelector="owner=helm")
    assert len(secret["data"]["release"]) < MOST_BYTES_OF_A_RELEASE / 2

    # Except what needs the definitions of the Prometheus operator.
    most = {name: value for name, value in EVERYTHING.items() if name not in ("podMonitors", "prometheusRule", "crd")}
    install(values=most, command="upgrade")
    assert replicas(admin) == most["replicas"]
    assert len(admin.items(BUDGETS)) == 1

    on_cluster.run("rollback", "ddpjob", "1", "--namespace", NAMESPACE)
    assert replicas(admin) == 1
    assert admin.items(BUDGETS) == []

    kept = on_cluster.run("uninstall", "ddpjob", "--namespace", NAMESPACE)
    assert "[CustomResourceDefinition] ddpjobs.ddpjob.dev" in kept
    assert admin.find(DEPLOYMENT) is None
    assert admin.items("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies") == []
    assert admin.find(job) is not None

    # The release that comes next takes over the definition that was kept, and may leave it to another one.
    install()
    install(values={"crd": {"install": False}}, command="upgrade")
    assert admin.find(job) is not None
    assert "DELETES" in install(values={"crd": {"keep": False}}, command="upgrade")
    on_cluster.run("uninstall", "ddpjob", "--namespace", NAMESPACE)
    wait_for(lambda: admin.find(DEFINITION) is None, "the definition to be gone")


def test_operators_of_different_namespaces_are_installed_and_removed_without_touching_each_other(
    on_cluster: Helm, install: Install, admin: Client, cluster: ControlPlane
) -> None:
    teams = [cluster.new_namespace() for _ in "ab"]
    install("ddpjob-cluster", values={"operator": {"install": False}})
    assert admin.find(DEPLOYMENT) is None
    for team in teams:
        install(team, values={"namespaces": [team], **ONCE})
    for own, other in (teams, reversed(teams)):
        account = f"{NAMESPACE}:ddpjob-operator-{own}"
        assert may(admin, account, "create", "pods", own)
        assert may(admin, account, "update", LEASES, NAMESPACE, name=f"ddpjob-operator.{own}")
        assert not may(admin, account, "update", LEASES, NAMESPACE, name=f"ddpjob-operator.{other}")
        assert not may(admin, account, "update", LEASES, NAMESPACE)
        assert not may(admin, account, "create", "pods", other)
        assert not may(admin, account, "list", "ddpjob.dev/ddpjobs", "")

    on_cluster.run("uninstall", teams[0], "--namespace", NAMESPACE)
    account = f"{NAMESPACE}:ddpjob-operator-{teams[1]}"
    assert may(admin, account, "create", "pods", teams[1])
    assert may(admin, account, "update", LEASES, NAMESPACE, name=f"ddpjob-operator.{teams[1]}")
    assert admin.find(DEFINITION) is not None
    # A second release with what a cluster has once is refused, and says of what.
    with pytest.raises(HelmError, match="exists and cannot be imported into the current release"):
        install("another", values={"operator": {"install": False}})


def test_what_kubectl_installed_is_taken_over_and_the_jobs_stay(
    install: Install, admin: Client, cluster: ControlPlane, helm: Helm
) -> None:
    cluster.install()
    (deployment,) = (each for each in kustomized(cluster.assets / "kubectl", "base") if each["kind"] == "Deployment")
    admin.apply(deployment)
    job = a_job(admin, cluster.new_namespace())
    # The labels that select its pods cannot be changed.
    admin.delete(DEPLOYMENT)
    install("ddpjob", NAMESPACE, None, "--take-ownership", *(["--force-conflicts"] if helm.major > 3 else []))
    assert replicas(admin) == 1
    assert admin.find(job) is not None
    assert owner(admin.get(DEFINITION)) == owner(admin.get(DEPLOYMENT)) == "ddpjob"


def owner(found: Json) -> str:
    name: str = found["metadata"]["annotations"]["meta.helm.sh/release-name"]
    return name
