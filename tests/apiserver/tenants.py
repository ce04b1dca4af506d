"""Users of a namespace who create jobs, and what the API server says to them."""

import http
import itertools
from dataclasses import dataclass
from typing import Any, Final

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import JobRecord
from tests.apiserver.controlplane import ApiError, Client, ControlPlane, Json, wait_for
from tests.apiserver.rights import CREATE_PODS, USE_PRIVILEGES, grant

TRAINER: Final = {"image": "i", "script": "train.py"}
_NAMES: Final = itertools.count()


@dataclass(frozen=True)
class Tenant:
    """A user with some rights in a namespace that enforces the Pod Security Standard `baseline`."""

    client: Client
    admin: Client
    namespace: str

    def job(self, template: Any = None, trainer: Json | None = None, **spec: Any) -> Json:
        job: Json = {
            "apiVersion": "ddpjob.dev/v1alpha1",
            "kind": "DDPJob",
            "metadata": {"name": f"job-{next(_NAMES)}", "namespace": self.namespace},
            "spec": {"trainer": {**TRAINER, **(trainer or {})}, **spec},
        }
        if template is not None:
            job["spec"]["template"] = template
        return job

    def refusal(self, job: Json) -> str:
        """Why the policy refuses a job, "" where it does not."""
        try:
            self.admitted(job)
        except ApiError as error:
            if error.code != http.HTTPStatus.FORBIDDEN:
                raise
            return error.message
        return ""

    def admitted(self, job: Json) -> Json:
        """The job as the API server would store it, or an `ApiError`."""
        return self.client.create(job, strict=False, dryRun="All")

    def pod(self, job: Json) -> Json:
        """The pod that comes of an admitted job, or an `ApiError`: Forbidden where `baseline` does not allow it."""
        spec = DDPJobSpec.model_validate(job["spec"])
        record = JobRecord(self.namespace, job["metadata"]["name"], "uid", "1", 1, deleting=False, spec=spec)
        return self.admin.create(build_pod(record, spec, 0, 0), dryRun="All")


def new_tenant(plane: ControlPlane, *rules: Json, labels: Json | None = None) -> Tenant:
    """A user with these rights and no others, once they hold.

    Args:
        plane: where.
        rules: of the user's Role.
        labels: more labels of the namespace.
    """
    namespace, name = plane.new_namespace(), "tenant"
    marks = {"pod-security.kubernetes.io/enforce": "baseline", **(labels or {})}
    plane.admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": marks}})
    metadata = {"name": name, "namespace": namespace}
    plane.admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    grant(plane, namespace, name, *rules)
    found = Tenant(plane.sign_in(namespace, name), plane.admin, namespace)
    # Neither a binding nor a policy holds in the moment in which it is created.
    harmless, bad = found.job(), found.job({"spec": {"hostPID": True}})

    def holds() -> bool:
        allowed = found.refusal(harmless) == "" or CREATE_PODS not in rules
        return allowed and (bool(found.refusal(bad)) or USE_PRIVILEGES in rules)

    wait_for(holds, "the rights of a tenant")
    return found


def containers(**fields: Any) -> Json:
    """A template with a sidecar."""
    return {"spec": {"containers": [{"name": "sidecar", "image": "i", **fields}]}}


def context(**fields: Any) -> Json:
    """A template with a sidecar of this securityContext."""
    return containers(securityContext=fields)


def volume(**kind: Any) -> Json:
    """A template with a volume."""
    return {"spec": {"volumes": [{"name": "v", **kind}]}}


def affinity(**node_affinity: Any) -> Json:
    """A template with a nodeAffinity."""
    return {"spec": {"affinity": {"nodeAffinity": node_affinity}}}
