"""What a user with few rights sees on a cluster on which the operator was installed as the README says."""

import pytest
import yaml
from jobs import digits
from kubectl import Kubectl, KubectlError, wait_until

pytestmark = pytest.mark.pod_security("privileged")

RBAC = "rbac.authorization.k8s.io"


def test_a_tenant_may_have_pods_created_that_they_may_create_and_no_others(kubectl: Kubectl) -> None:
    user = f"--as=system:serviceaccount:{kubectl.namespace}:default"

    def refused(job: dict[str, object]) -> str:
        try:
            kubectl("create", user, "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(job))
        except KubectlError as error:
            return str(error)
        return ""

    def grant(name: str, group: str, resource: str, verb: str) -> None:
        rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
        role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
        kubectl.apply(role)
        kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={kubectl.namespace}:default")

    plain = digits("plain")
    host = digits("host", template={"spec": {"hostNetwork": True}})
    grant("jobs", "ddpjob.dev", "ddpjobs", "create")
    wait_until(lambda: "may not create pods in namespace" in refused(plain), "the first right to be known")
    grant("pods", "", "pods", "create")
    wait_until(lambda: not refused(plain), "the second right to be known")
    said = refused(host)
    assert (
        "the job asks for spec.template.spec.hostNetwork: remove that, or ask an administrator for the verb use" in said
    )
    grant("privileged", "ddpjob.dev", "ddpjobs/privileged", "use")
    wait_until(lambda: not refused(host), "the third right to be known")
