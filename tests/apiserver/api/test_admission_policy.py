"""Who may have the operator create which pods, as the API server itself decides it."""

import http
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from tests.apiserver.controlplane import ApiError, Client, ControlPlane, Json, wait_for
from tests.apiserver.rights import CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES, grant

API = "ddpjob.dev/v1alpha1"
TRAINER = {"image": "i", "script": "train.py"}
NAMES = itertools.count()


@dataclass(frozen=True)
class Tenant:
    """A user with some rights in a namespace."""

    client: Client
    namespace: str

    def job(self, template: Any = None, trainer: Json | None = None, **spec: Any) -> Json:
        job: Json = {
            "apiVersion": API,
            "kind": "DDPJob",
            "metadata": {"name": f"job-{next(NAMES)}", "namespace": self.namespace},
            "spec": {"trainer": {**TRAINER, **(trainer or {})}, **spec},
        }
        if template is not None:
            job["spec"]["template"] = template
        return job

    def refusal(self, job: Json) -> str:
        """Why the API server refuses a job, "" where it does not."""
        try:
            self.client.create(job, strict=False, dryRun="All")
        except ApiError as error:
            if error.code != http.HTTPStatus.FORBIDDEN:
                raise
            return error.message
        return ""


def tenant(plane: ControlPlane, *rules: Json) -> Tenant:
    namespace, name = plane.new_namespace(), "tenant"
    metadata = {"name": name, "namespace": namespace}
    plane.admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    grant(plane, namespace, name, *rules)
    found = Tenant(plane.sign_in(namespace, name), namespace)
    # Neither a binding nor a policy holds in the moment in which it is created.
    harmless, bad = found.job(), found.job({"spec": {"hostPID": True}})

    def holds() -> bool:
        allowed = found.refusal(harmless) == "" or CREATE_PODS not in rules
        return allowed and (bool(found.refusal(bad)) or USE_PRIVILEGES in rules)

    wait_for(holds, "the rights of a tenant")
    return found


@pytest.fixture(scope="module")
def allowed(control_plane: ControlPlane) -> Tenant:
    """May create jobs and pods."""
    return tenant(control_plane, CHANGE_JOBS, CREATE_PODS)


@pytest.fixture(scope="module")
def privileged(control_plane: ControlPlane) -> Tenant:
    """May create everything."""
    return tenant(control_plane, CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES)


def test_who_may_not_create_pods_may_create_no_job_but_may_suspend_one(control_plane: ControlPlane) -> None:
    other = tenant(control_plane, CHANGE_JOBS)
    job = other.job()
    said = other.refusal(job)
    assert f"system:serviceaccount:{other.namespace}:tenant may not create pods in namespace {other.namespace}" in said
    stored = control_plane.admin.create(job)
    stored["spec"]["suspend"] = True
    stored = other.client.replace(stored)
    stored["metadata"]["annotations"] = {"seen": "by a user"}
    stored["spec"] |= {
        "nodes": 2,
        "restart": {"maxRestarts": 1},
        "ttlSecondsAfterFinished": 5,
        "activeDeadlineSeconds": 60,
    }
    stored = other.client.replace(stored)
    for change in ({"trainer": {**TRAINER, "image": "other"}}, {"template": {"spec": {"hostNetwork": True}}}):
        with pytest.raises(ApiError, match="may not create pods"):
            other.client.replace({**stored, "spec": {**stored["spec"], **change}})


def containers(**fields: Any) -> Json:
    return {"spec": {"containers": [{"name": "sidecar", "image": "i", **fields}]}}


def context(**fields: Any) -> Json:
    return containers(securityContext=fields)


def volume(**kind: Any) -> Json:
    return {"spec": {"volumes": [{"name": "v", **kind}]}}


def affinity(**node_affinity: Any) -> Json:
    return {"spec": {"affinity": {"nodeAffinity": node_affinity}}}


TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
PLACE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/trainer"

SAFE: dict[str, Any] = {
    "nothing": {},
    "no pod spec": {"metadata": {"labels": {"a": "b"}}},
    "null": {"spec": None},
    "what is null or false": {"spec": {"hostNetwork": False, "nodeName": None, "containers": None, "affinity": None}},
    "a sidecar": containers(
        args=["x"], ports=[{"containerPort": 80}], livenessProbe={"httpGet": {"path": "/", "port": 80}}
    ),
    "an init container": {"spec": {"initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}]}},
    "a user": context(runAsUser=1000, runAsNonRoot=True, allowPrivilegeEscalation=False, privileged=False),
    "dropped capabilities": context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "a profile": context(seccompProfile={"type": "RuntimeDefault"}),
    "a group": {"spec": {"securityContext": {"fsGroup": 1000, "supplementalGroups": [5]}}},
    "a claim": volume(persistentVolumeClaim={"claimName": "c"}),
    "a Secret": volume(secret={"secretName": "s"}),
    "memory": volume(emptyDir={"medium": "Memory"}),
    "projected files": volume(projected={"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}),
    "a toleration": {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}},
    "a zone": affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [PLACE]}),
    "the default account": {"spec": {"serviceAccountName": "default", "automountServiceAccountToken": False}},
    "a priority": {"spec": {"priorityClassName": "high"}},
}

REFUSED: dict[str, tuple[Any, str]] = {
    "hostNetwork": ({"spec": {"hostNetwork": True}}, "spec.template.spec.hostNetwork"),
    "several": ({"spec": {"hostPID": True, "hostIPC": True}}, "hostIPC"),
    "nodeName": ({"spec": {"nodeName": "node-1"}}, "spec.template.spec.nodeName"),
    "what Kubernetes adds": ({"spec": {"rootTheNode": {"please": True}}}, "spec.template.spec.rootTheNode"),
    "privileged": (context(privileged=True), "privileged"),
    "escalation": (context(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
    "procMount": (context(procMount="Unmasked"), "securityContext of a container"),
    "SELinux": (context(seLinuxOptions={"type": "spc_t"}), "securityContext of a container"),
    "root": (context(runAsUser=0), "runAsUser 0"),
    "root of the pod": ({"spec": {"securityContext": {"runAsUser": 0}}}, "runAsUser 0"),
    "capabilities": (context(capabilities={"add": ["SYS_ADMIN"]}), "capabilities.add"),
    "a text of capabilities": (context(capabilities={"add": "SYS_ADMIN"}), "capabilities.add"),
    "init container": (
        {"spec": {"initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": True}}]}},
        "privileged",
    ),
    "the trainer's own": (
        {"spec": {"containers": [{"name": "trainer", "securityContext": {"privileged": True}}]}},
        "privileged",
    ),
    "seccomp": (context(seccompProfile={"type": "Unconfined"}), "an unconfined profile"),
    "seccomp of the pod": (
        {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
        "an unconfined profile",
    ),
    "AppArmor": (context(appArmorProfile={"type": "Unconfined"}), "an unconfined profile"),
    "AppArmor's annotation": ({"metadata": {"annotations": {APPARMOR: "unconfined"}}}, "an unconfined profile"),
    "sysctls": ({"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}, "sysctls"),
    "hostPath": (volume(hostPath={"path": "/"}), "hostPath"),
    "a kind of volume that is new": (volume(rawNode={}), "a volume of the node"),
    "nfs": (volume(nfs={"server": "s", "path": "/"}), "a volume of the node"),
    "a token": (volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}), "a projected token"),
    "hostPort": (containers(ports=[{"containerPort": 80, "hostPort": 80}]), "ports[].hostPort"),
    "an account": ({"spec": {"serviceAccountName": "admin"}}, "serviceAccountName"),
    "the old name of an account": ({"spec": {"serviceAccount": "admin"}}, "serviceAccountName"),
    "its token": ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken"),
    "a priority of the system": ({"spec": {"priorityClassName": "system-node-critical"}}, "priorityClassName"),
    "the operator's priority": ({"spec": {"priorityClassName": "ddpjob-critical"}}, "priorityClassName"),
    "the control plane": (
        {"spec": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}},
        "a toleration",
    ),
    "everything": ({"spec": {"tolerations": [{"operator": "Exists"}]}}, "a toleration"),
    "an empty key": ({"spec": {"tolerations": [{"key": "", "operator": "Exists"}]}}, "a toleration"),
    "a node by name": (
        affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [PLACE, TERM]}),
        "a node by its name",
    ),
    "a node by preference": (
        affinity(preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 1, "preference": TERM}]),
        "a node by its name",
    ),
    "a probe of another host": (
        containers(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "a probe or hook of another host",
    ),
    "a hook of another host": (
        containers(lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
        "a probe or hook of another host",
    ),
    "a field of a container": (containers(hostUsersPlease=True), "a field of a container"),
    "a pod that is a list": ({"spec": ["hostPID"]}, "the wrong type"),
    "containers that are an object": ({"spec": {"containers": {"privileged": True}}}, "the wrong type"),
    "a container that is a text": ({"spec": {"containers": ["privileged"]}}, "the wrong type"),
    "volumes that are a text": ({"spec": {"volumes": "hostPath"}}, "the wrong type"),
    "a securityContext that is a list": (containers(securityContext=["privileged"]), "the wrong type"),
    "ports that are an object": (containers(ports={"hostPort": 80}), "the wrong type"),
    "tolerations that hold null": ({"spec": {"tolerations": [None]}}, "the wrong type"),
}


@pytest.mark.parametrize("template", SAFE.values(), ids=list(SAFE))
def test_what_stays_in_its_container_is_everybodys(allowed: Tenant, template: Json) -> None:
    assert allowed.refusal(allowed.job(template)) == ""


@pytest.mark.parametrize(("template", "named"), REFUSED.values(), ids=list(REFUSED))
def test_what_reaches_beyond_is_named_and_refused_to_those_who_may_not_use_it(
    allowed: Tenant, privileged: Tenant, template: Json, named: str
) -> None:
    said = allowed.refusal(allowed.job(template))
    assert named in said
    assert f"ask an administrator for the verb use on ddpjobs/privileged in namespace {allowed.namespace}" in said
    assert privileged.refusal(privileged.job(template)) == ""


@pytest.mark.parametrize(
    ("trainer", "named"),
    [
        ({"securityContext": {"privileged": True}}, "privileged"),
        ({"securityContext": {"runAsUser": 0}}, "runAsUser 0"),
        ({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}, "capabilities.add"),
        ({"ports": [{"containerPort": 80, "hostPort": 8080}]}, "ports[].hostPort"),
    ],
)
def test_the_trainer_is_judged_like_the_template(allowed: Tenant, trainer: Json, named: str) -> None:
    assert named in allowed.refusal(allowed.job(trainer=trainer))


def test_a_change_is_judged_like_a_creation(allowed: Tenant) -> None:
    stored = allowed.client.create(allowed.job({"spec": {"enableServiceLinks": True}}, suspend=True))
    # As many keys as before, and the same value: what compares key by key would see no change.
    stored["spec"]["template"] = {"spec": {"hostPID": True}}
    with pytest.raises(ApiError, match=r"spec\.template\.spec\.hostPID"):
        allowed.client.replace(stored)


def test_a_job_of_an_administrator_can_be_suspended_and_resumed_by_anybody_who_may_change_it(
    allowed: Tenant, control_plane: ControlPlane
) -> None:
    stored = control_plane.admin.create(allowed.job({"spec": {"hostNetwork": True}}))
    for suspend in (True, False):
        stored["spec"]["suspend"] = suspend
        stored = allowed.client.replace(stored)
    # What is deleted may still be changed by its finalizers' owners.
    stored["metadata"]["finalizers"] = ["example.com/wait"]
    assert allowed.client.replace(stored)["metadata"]["finalizers"]
