"""Who may have the operator create which pods, as the API server itself decides it."""

import http
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.apiserver.controlplane import ROOT, ApiError, Client, ControlPlane, Json, path_of
from tests.apiserver.rights import CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES
from tests.apiserver.tenants import TRAINER, Tenant, affinity, containers, context, new_tenant, volume

PATCH_JOBS: Json = {
    "apiGroups": ["ddpjob.dev"],
    "resources": ["ddpjobs", "ddpjobs/scale"],
    "verbs": ["patch", "update"],
}


@pytest.fixture(scope="module")
def allowed(control_plane: ControlPlane) -> Tenant:
    """May create jobs and pods."""
    control_plane.admin.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    )
    return new_tenant(control_plane, CHANGE_JOBS, PATCH_JOBS, CREATE_PODS)


@pytest.fixture(scope="module")
def privileged(control_plane: ControlPlane) -> Tenant:
    """May create everything."""
    return new_tenant(control_plane, CHANGE_JOBS, CREATE_PODS, USE_PRIVILEGES)


def test_who_may_not_create_pods_may_create_no_job_but_may_suspend_one(control_plane: ControlPlane) -> None:
    other = new_tenant(control_plane, CHANGE_JOBS)
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


TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
PLACE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def labelled(key: str, operator: str, *values: str) -> Json:
    """Nodes by a label."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


APPARMOR = "container.apparmor.security.beta.kubernetes.io/trainer"

PORTS = [{"containerPort": 8000 + number} for number in range(8)]
BUSY: Json = {
    "image": "i",
    "ports": PORTS,
    "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    "env": [{"name": f"A{number}", "value": "x"} for number in range(100)],
}

SAFE: dict[str, Any] = {
    "a pod of many parts": {
        "spec": {
            "containers": [{"name": f"c{number}", **BUSY} for number in range(20)],
            "volumes": [{"name": f"v{number}", "secret": {"secretName": "s"}} for number in range(100)],
            "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(40)],
        }
    },
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
    "root's group": {"spec": {"securityContext": {"fsGroup": 0, "supplementalGroups": [0], "runAsGroup": 0}}},
    "no port of the node": containers(ports=[{"containerPort": 80, "hostPort": 0, "hostIP": ""}]),
    "null in its parts": {
        "spec": {
            "containers": [{"name": "a", "image": "i", "securityContext": None, "ports": None, "livenessProbe": None}],
            "securityContext": None,
            "tolerations": None,
            "volumes": [{"name": "v", "emptyDir": {}, "hostPath": None}],
            "serviceAccountName": None,
            "priorityClassName": None,
        }
    },
    "null in a securityContext": context(runAsUser=None, privileged=None, capabilities={"add": None}),
    "null in projected files": volume(projected={"sources": None}),
    "annotations that Kubernetes once read": {
        "metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}
    },
    "a class of storage": volume(
        ephemeral={
            "volumeClaimTemplate": {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "x",
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            }
        }
    ),
    "what concerns the pod's inside": {
        "spec": {
            "shareProcessNamespace": True,
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "dnsPolicy": "Default",
            "schedulerName": "other",
        }
    },
    "a claim": volume(persistentVolumeClaim={"claimName": "c"}),
    "a Secret": volume(secret={"secretName": "s"}),
    "memory": volume(emptyDir={"medium": "Memory"}),
    "projected files": volume(projected={"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}),
    "a toleration": {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}},
    "a zone": affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [PLACE]}),
    "a kind of node": {"spec": {"nodeSelector": {"node-role.kubernetes.io/gpu": "", "gpu": "h100"}}},
    "all nodes but some": affinity(
        requiredDuringSchedulingIgnoredDuringExecution={
            "nodeSelectorTerms": [
                labelled("kubernetes.io/hostname", "NotIn", "node-1"),
                labelled("node-role.kubernetes.io/control-plane", "DoesNotExist"),
            ]
        }
    ),
    "the default account": {"spec": {"serviceAccountName": "default", "automountServiceAccountToken": False}},
    "a priority": {"spec": {"priorityClassName": "high"}},
}

REFUSED: dict[str, tuple[Any, str]] = {
    "hostNetwork": ({"spec": {"hostNetwork": True}}, "spec.template.spec.hostNetwork"),
    "hostNetwork as text": ({"spec": {"hostNetwork": "true"}}, "spec.template.spec.hostNetwork"),
    "hostNetwork in other case": ({"spec": {"HostNetwork": True}}, "spec.template.spec.HostNetwork"),
    "ephemeral containers": (
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": {"privileged": True}}]}},
        "spec.template.spec.ephemeralContainers",
    ),
    "several": ({"spec": {"hostPID": True, "hostIPC": True}}, "hostIPC"),
    "nodeName": ({"spec": {"nodeName": "node-1"}}, "spec.template.spec.nodeName"),
    "what Kubernetes adds": ({"spec": {"rootTheNode": {"please": True}}}, "spec.template.spec.rootTheNode"),
    "privileged": (context(privileged=True), "privileged"),
    "escalation": (context(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
    "procMount": (context(procMount="Unmasked"), "securityContext of a container"),
    "SELinux": (context(seLinuxOptions={"type": "spc_t"}), "securityContext of a container"),
    "root": (context(runAsUser=0), "runAsUser 0"),
    "root with a fraction": (context(runAsUser=0.0), "runAsUser 0"),
    "root below nothing": (context(runAsUser=-0.0), "runAsUser 0"),
    "root of the pod": ({"spec": {"securityContext": {"runAsUser": 0}}}, "runAsUser 0"),
    "capabilities": (context(capabilities={"add": ["SYS_ADMIN"]}), "capabilities.add"),
    "a capability in other case": (context(capabilities={"add": ["sys_admin"]}), "capabilities.add"),
    "many capabilities": (context(capabilities={"add": ["NET_BIND_SERVICE"] * 2_000}), "capabilities.add"),
    "Windows": (context(windowsOptions={"hostProcess": True}), "securityContext of a container"),
    "Windows of the pod": ({"spec": {"securityContext": {"windowsOptions": {"hostProcess": True}}}}, "securityContext"),
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
    "hostPath and memory": (volume(hostPath={"path": "/"}, emptyDir={}), "hostPath"),
    "a kind of volume that is new": (volume(rawNode={}), "a volume of the node"),
    "nfs": (volume(nfs={"server": "s", "path": "/"}), "a volume of the node"),
    "a token": (volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}), "a projected token"),
    "a null among projected files": (volume(projected={"sources": [None]}), "a projected token"),
    "sources that are an object": (volume(projected={"sources": {"serviceAccountToken": {}}}), "a projected token"),
    "a certificate": (volume(projected={"sources": [{"podCertificate": {"signerName": "a/b"}}]}), "a projected token"),
    "hostPort": (containers(ports=[{"containerPort": 80, "hostPort": 80}]), "ports[].hostPort"),
    "hostPort as text": (containers(ports=[{"containerPort": 80, "hostPort": "80"}]), "ports[].hostPort"),
    "hostIP": (containers(ports=[{"containerPort": 80, "hostIP": "10.0.0.1"}]), "ports[].hostPort"),
    "an account": ({"spec": {"serviceAccountName": "admin"}}, "serviceAccountName"),
    "the old name of an account": ({"spec": {"serviceAccount": "admin"}}, "serviceAccountName"),
    "its token": ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken"),
    # What Kubernetes makes of null is what it makes of nothing: a token.
    "its token by null": ({"spec": {"automountServiceAccountToken": None}}, "automountServiceAccountToken"),
    "its token as text": ({"spec": {"automountServiceAccountToken": "false"}}, "automountServiceAccountToken"),
    "a priority as a number": ({"spec": {"priority": 2_000_000_000}}, "spec.template.spec.priority"),
    "a list of priorities": ({"spec": {"priorityClassName": ["system-node-critical"]}}, "priorityClassName"),
    "a priority of the system": ({"spec": {"priorityClassName": "system-node-critical"}}, "priorityClassName"),
    "the operator's priority": ({"spec": {"priorityClassName": "ddpjob-critical"}}, "priorityClassName"),
    "the control plane": (
        {"spec": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}},
        "a toleration",
    ),
    "etcd": (
        {"spec": {"tolerations": [{"key": "node-role.kubernetes.io/etcd", "operator": "Exists"}]}},
        "a toleration",
    ),
    "everything": ({"spec": {"tolerations": [{"operator": "Exists"}]}}, "a toleration"),
    "a null key": ({"spec": {"tolerations": [{"key": None, "operator": "Exists"}]}}, "a toleration"),
    "an empty key": ({"spec": {"tolerations": [{"key": "", "operator": "Exists"}]}}, "a toleration"),
    "a node by name": (
        affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [PLACE, TERM]}),
        "a node by its name",
    ),
    "a node by the label with its name": ({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n"}}}, "nodeSelector"),
    "the control plane's nodes": (
        {"spec": {"nodeSelector": {"zone": "a", "node-role.kubernetes.io/control-plane": ""}}},
        "nodeSelector",
    ),
    **{
        f"{name} by an expression": (
            affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [PLACE, labelled(*wanted)]}),
            r"matchExpressions",
        )
        for name, wanted in {
            "a node": ("kubernetes.io/hostname", "In", "node-1"),
            "nodes greater than one": ("kubernetes.io/hostname", "Gt", "1"),
            "nodes of etcd": ("node-role.kubernetes.io/etcd", "Exists"),
            "nodes of the control plane": ("node-role.kubernetes.io/master", "In", ""),
        }.items()
    },
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
    "a probe of an init container": (
        {
            "spec": {
                "initContainers": [{"name": "i", "image": "i", "startupProbe": {"tcpSocket": {"host": "a", "port": 1}}}]
            }
        },
        "a probe or hook of another host",
    ),
    "a field of a container": (containers(hostUsersPlease=True), "a field of a container"),
    "many fields": ({"spec": {f"field{number}": 1 for number in range(900)}}, "fields of spec.template.spec"),
    "many volumes": ({"spec": {"volumes": [[]] * 100_000}}, "more than 1,000"),
    "many containers": ({"spec": {"containers": [{"name": "c", "image": "i"}] * 2_000}}, "more than 1,000"),
    "many ports": (containers(ports=[{"containerPort": 80}] * 2_000), "more than 1,000"),
    "a pod that is false": ({"spec": False}, "the wrong type"),
    "a pod that is a list": ({"spec": ["hostPID"]}, "the wrong type"),
    "containers that are an object": ({"spec": {"containers": {"privileged": True}}}, "the wrong type"),
    "a container that is a text": ({"spec": {"containers": ["privileged"]}}, "the wrong type"),
    "volumes that are a text": ({"spec": {"volumes": "hostPath"}}, "the wrong type"),
    "a securityContext that is a list": (containers(securityContext=["privileged"]), "the wrong type"),
    "ports that are an object": (containers(ports={"hostPort": 80}), "the wrong type"),
    "tolerations that hold null": ({"spec": {"tolerations": [None]}}, "the wrong type"),
}


NO_POD: dict[str, Any] = {
    "root as text": context(runAsUser="0"),
    "root as false": context(runAsUser=False),
    "root by overflow": context(runAsUser=2**32),
    "a fraction of root": context(runAsUser=1e-323),
    "a profile in other case": context(seccompProfile={"type": "unconfined"}),
    "a profile without a type": context(seccompProfile={}),
    "a profile of an annotation": {"metadata": {"annotations": {APPARMOR: "Unconfined"}}},
    "a key that is a number": {"spec": {"tolerations": [{"key": 0, "operator": "Exists"}]}},
    "a selector that is a list": {"spec": {"nodeSelector": ["kubernetes.io/hostname"]}},
    "an expression without an operator": affinity(
        requiredDuringSchedulingIgnoredDuringExecution={
            "nodeSelectorTerms": [{"matchExpressions": {"key": "kubernetes.io/hostname", "values": ["a"]}}]
        }
    ),
    "terms that are a list": affinity(requiredDuringSchedulingIgnoredDuringExecution=[TERM]),
    "a preference that is an object": affinity(preferredDuringSchedulingIgnoredDuringExecution={"preference": TERM}),
    "a probe that is a list": containers(livenessProbe=[{"httpGet": {"host": "10.0.0.1", "port": 80}}]),
    "a mount into the node": containers(
        volumeMounts=[{"name": "ddpjob-shared-memory", "mountPath": "/x", "mountPropagation": "Bidirectional"}]
    ),
    "a mirror of a node's pod": {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
}


@pytest.mark.parametrize("template", SAFE.values(), ids=list(SAFE))
def test_what_stays_in_its_container_is_everybodys_and_pod_security_agrees(allowed: Tenant, template: Json) -> None:
    job = allowed.admitted(allowed.job(template))
    assert allowed.pod(job)["spec"]["automountServiceAccountToken"] is False


def test_pod_security_does_not_agree_to_what_is_refused(allowed: Tenant, privileged: Tenant) -> None:
    for template in (
        volume(hostPath={"path": "/"}),
        context(runAsUser=1, seLinuxOptions={"user": "x"}),
        {"spec": {"hostPID": True}},
    ):
        job = privileged.admitted(privileged.job(template))
        with pytest.raises(ApiError, match="violates PodSecurity"):
            allowed.pod(job)


@pytest.mark.parametrize("template", NO_POD.values(), ids=list(NO_POD))
def test_what_is_written_wrongly_and_admitted_becomes_no_pod(allowed: Tenant, template: Json) -> None:
    job = allowed.admitted(allowed.job(template))
    with pytest.raises(ApiError) as refused:
        allowed.pod(job)
    assert refused.value.code in (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNPROCESSABLE_ENTITY)


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


def _merge(client: Client, job: Json, template: Json) -> Json:
    return client.patch(path_of(job), {"spec": {"template": template}})


def _json_patch(client: Client, job: Json, template: Json) -> Json:
    change: Any = [{"op": "add", "path": "/spec/template", "value": template}]
    return client.request("PATCH", path_of(job), change, content_type="application/json-patch+json")


def _apply(client: Client, job: Json, template: Json) -> Json:
    metadata = {field: job["metadata"][field] for field in ("name", "namespace")}
    return client.apply({**job, "metadata": metadata, "spec": {**job["spec"], "template": template}})


def _apply_new(client: Client, job: Json, template: Json) -> Json:
    name = f"{job['metadata']['name']}-new"
    metadata = {"name": name, "namespace": job["metadata"]["namespace"]}
    return client.apply({**job, "metadata": metadata, "spec": {"trainer": TRAINER, "template": template}})


@pytest.mark.parametrize("change", [_merge, _json_patch, _apply, _apply_new])
def test_every_way_to_change_a_job_is_judged(allowed: Tenant, change: Callable[[Client, Json, Json], Json]) -> None:
    stored = allowed.client.create(allowed.job(suspend=True))
    for field in ("apiVersion", "kind"):
        assert stored[field]
    stored.pop("status", None)
    with pytest.raises(ApiError, match=r"spec\.template\.spec\.hostPID"):
        change(allowed.client, stored, {"spec": {"hostPID": True}})
    assert change(allowed.client, stored, {"spec": {"enableServiceLinks": True}})["spec"]["template"]


def test_a_job_from_before_the_policy_is_suspended_and_resized_however_large_it_is(
    allowed: Tenant, control_plane: ControlPlane
) -> None:
    volumes = [{"name": "v", "hostPath": {"path": "/"}}] * 5_000
    stored = control_plane.admin.create(allowed.job({"spec": {"volumes": volumes}}))
    path = path_of(stored)
    for change in ({"spec": {"suspend": True}}, {"metadata": {"labels": {"a": "b"}}}):
        allowed.client.patch(path, change)
    allowed.client.patch(f"{path}/scale", {"spec": {"replicas": 2}})
    with pytest.raises(ApiError, match=r"more than 1,000.*ask an administrator"):
        allowed.client.patch(path, {"spec": {"trainer": {"image": "other"}}})


def test_the_examples_need_no_more_than_pods_except_the_one_on_the_nodes_network(allowed: Tenant) -> None:
    refused: dict[str, str] = {}
    for example in sorted((ROOT / "manifests/examples").glob("*.yaml")):
        for job in yaml.safe_load_all(example.read_text()):
            if job["kind"] == "DDPJob":
                job["metadata"]["namespace"] = allowed.namespace
                refused[example.stem] = allowed.refusal(job)
    assert {name for name, said in refused.items() if said} == {"host-network"}
    assert "spec.template.spec.hostNetwork" in refused["host-network"]
