"""`ddpjob doctor --install` before an operator is installed, after, and when it is gone."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob.cluster.installation import OF_JOBS, OF_LEASES, Permission
from ddpjob_core.api.resources import Resource
from ddpjob_core.api.scope import Scope
from tests.apiserver.client.program import Program
from tests.apiserver.controlplane import BASE, NAMESPACE, ControlPlane, Json
from tests.apiserver.rights import grant
from tests.apiserver.stage import ForkedOperator, until

pytestmark = pytest.mark.timeout(120)

DEPLOYMENTS = Resource("/apis/apps/v1", "deployments")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ddpjob-system/leases/ddpjob-operator"
INSTALLED = ("Definition", "Admission policy", "Priority class")


def outcomes(program: Program, *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code, and the outcome of each check."""
    done = program("doctor", "--install", "-o", "json", *arguments)
    return done.exit_code, {check["name"]: check["outcome"] for check in json.loads(done.stdout)}


class Everywhere(Program):
    """`ddpjob` without a namespace."""

    def __init__(self, kubeconfig: Path) -> None:
        self._options = ["--kubeconfig", str(kubeconfig)]


def rules(*permissions: Permission) -> list[Json]:
    return [
        {
            "apiGroups": [resource.group],
            "resources": [f"{resource.plural}/{sub}" if sub else resource.plural],
            "verbs": list(verbs),
        }
        for resource, sub, verbs in permissions
    ]


def applying(group: str, *resources: str) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["create", "patch"]}


@contextlib.asynccontextmanager
async def operating(plane: ControlPlane, folder: Path) -> AsyncIterator[ForkedOperator]:
    operator = ForkedOperator(plane.operator_kubeconfig, folder / "operator.log", "--lease-duration=2")
    operator.pod = "operator-0"
    await operator.start()
    try:
        yield operator
    finally:
        await operator.end()


def deploy(plane: ControlPlane) -> None:
    """The Deployment of manifests/base, as it is while its pod is ready."""
    manifest = yaml.safe_load((BASE / "deployment.yaml").read_text())
    plane.admin.apply(manifest)
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    plane.admin.patch(DEPLOYMENTS.path(NAMESPACE, "ddpjob-operator", "status"), {"status": status})


def undeploy(plane: ControlPlane) -> None:
    for path in (DEPLOYMENTS.path(NAMESPACE, "ddpjob-operator"), LEASE):
        if plane.admin.find(path):
            plane.admin.delete(path)


async def test_an_installation_is_followed_from_nothing_to_an_operator_that_leads_and_one_that_is_gone(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = own_control_plane
    program = Everywhere(plane.admin_kubeconfig)
    plane.uninstall()
    code, nothing = await asyncio.to_thread(outcomes, program)
    assert code == 0, nothing
    plane.install()
    assert {nothing[each] for each in (*INSTALLED, "Operator")} == {"MISSING"}
    assert (nothing["Permissions"], nothing["Leader"]) == ("OK", "SKIP")
    code, prepared = await asyncio.to_thread(outcomes, program)
    assert code == 0, prepared
    assert {prepared[each] for each in INSTALLED} == {"OK"}
    assert prepared["Operator"] == "MISSING"
    async with operating(plane, tmp_path) as operator:
        await until("it leads", lambda: leads(operator))
        code, foreign = await asyncio.to_thread(outcomes, program)
        assert (code, foreign["Leader"]) == (1, "FAIL")
        deploy(plane)
        code, sound = await asyncio.to_thread(outcomes, program)
        assert code == 0, sound
        assert {sound[each] for each in (*INSTALLED, "Operator", "Leader", "Version", "Permissions")} == {"OK"}
        assert outcomes(program, "--monitoring")[1]["Monitoring"] == "FAIL"
        operator.kill()
        await operator.gone()
        code, gone = await asyncio.to_thread(outcomes, program)
        assert (code, gone["Leader"], gone["Operator"]) == (1, "FAIL", "OK")


async def leads(operator: ForkedOperator) -> bool:
    return await operator.metric("leading") == 1


def test_rights_to_grant_are_needed_and_those_of_roles_are_enough_for_one_namespace(
    breakable_control_plane: ControlPlane,
) -> None:
    plane = breakable_control_plane
    undeploy(plane)
    namespace = plane.new_namespace()
    user = Program(plane.new_user(namespace), namespace)
    code, without = outcomes(user)
    assert (code, without["Permissions"]) == (1, "FAIL")
    roles = applying("rbac.authorization.k8s.io", "roles", "rolebindings")
    grant(plane, namespace, "nobody", roles)
    own = Scope.of(namespace).lease
    of_leases = [{**rule, "resourceNames": [own]} if "get" in rule["verbs"] else rule for rule in rules(*OF_LEASES)]
    of_operator = (applying("", "serviceaccounts"), applying("apps", "deployments"))
    lease_rights(plane, namespace, roles, *of_operator, *of_leases)
    said = {check["name"]: check for check in user.json("doctor", "--install")}["Permissions"]["message"]
    assert f"create pods in {namespace}, which you would grant" in said
    assert "clusterroles" not in said
    grant(plane, namespace, "nobody", *rules(*OF_JOBS), role="operating")
    assert outcomes(user)[1]["Permissions"] == "OK"
    # What he cannot see is not taken for sound: Deployments elsewhere, and Leases.
    assert outcomes(user)[1]["Operator"] == "FAIL"


def lease_rights(plane: ControlPlane, user: str, *granted: Any) -> None:
    """Give the account of a namespace a Role where the Leases are."""
    grant(plane, NAMESPACE, "nobody", *granted, role=f"of-{user}", home=user)


def test_a_job_and_an_installation_are_not_checked_together(program: Program) -> None:
    for arguments in (("--install", "digits"), ("--monitoring",)):
        assert program("doctor", *arguments).exit_code == 2
