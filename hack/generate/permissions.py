"""docs/rbac.md: what the operator may do, and why."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cache import ROOT

CLUSTER_ROLE: Final = ROOT / "manifests/base/cluster-role.yaml"
ROLE: Final = ROOT / "manifests/base/role.yaml"
NETWORK_POLICIES: Final = ROOT / "manifests/overlays/network-policies/cluster-role.yaml"
"""A patch that adds to the former what the flag --network-policies needs."""

Permission = tuple[str, str]
"""Resource (with its group, if it has one) and verb."""

_REASONS: Final[dict[Permission, str]] = {
    ("ddpjobs.ddpjob.dev", "list"): "Read all jobs at startup, and again after a watch has been broken for too long.",
    ("ddpjobs.ddpjob.dev", "watch"): "Learn of new, changed and deleted jobs.",
    ("ddpjobs.ddpjob.dev", "delete"): "Delete a finished job when spec.ttlSecondsAfterFinished has passed.",
    ("ddpjobs.ddpjob.dev/status", "update"): "Write the status; the rest of a job is never written.",
    ("pods", "create"): "Create one pod per node of a job.",
    ("pods", "delete"): "End an attempt on restart or suspension, and clean up when the job finishes.",
    (
        "pods",
        "list",
    ): "Read the pods of all jobs at startup, and again after a watch has been broken for too long. Find out by its "
    "name who owns a pod whose name is taken, or that has lost its labels.",
    ("pods", "patch"): "Tell the pods of an elastic job, by an annotation, which nodes train together.",
    ("pods", "watch"): "Learn of changes to pods.",
    ("services", "create"): "Create the headless service through which the nodes of a job find each other.",
    (
        "services",
        "list",
    ): "Read the services of all jobs at startup, and again after a watch has been broken for too long. Find out by "
    "its name who owns a service whose name is taken.",
    ("services", "watch"): "Learn when a job's service exists, and when a name that was taken is free.",
    (
        "configmaps",
        "create",
    ): "Deliver the launcher to the pods. No ConfigMap is ever read, not even that one.",
    ("persistentvolumeclaims", "create"): "Create the claim for checkpoints that spec.checkpoint.size requests.",
    ("persistentvolumeclaims", "get"): "Reuse a claim that was kept for a job of the same name.",
    (
        "secrets",
        "create",
    ): "Create the ssh key of a job whose launcher is mpirun. No secret is ever read, not even that one.",
    ("events", "create"): "Report what happens to a job in `kubectl describe ddpjob`.",
    ("leases.coordination.k8s.io", "create"): "Take the lead where no operator has had it before.",
    ("leases.coordination.k8s.io", "get"): "Find out who holds a Lease that has changed unexpectedly.",
    ("leases.coordination.k8s.io", "list"): "Find operators with another scope that lead some of the same jobs.",
    ("leases.coordination.k8s.io", "watch"): "Learn when the leader is gone.",
    ("leases.coordination.k8s.io", "update"): "Take, renew and release the Lease.",
}

_WITH_NETWORK_POLICIES: Final[dict[Permission, str]] = {
    ("networkpolicies.networking.k8s.io", "create"): "Create the NetworkPolicy of a job, before its pods.",
    (
        "networkpolicies.networking.k8s.io",
        "list",
    ): "Read those of all jobs at startup, and again after a watch has been broken for too long. Find out by its name "
    "who owns one whose name is taken.",
    (
        "networkpolicies.networking.k8s.io",
        "update",
    ): "Put the policy of a job right that does not say what it should.",
    ("networkpolicies.networking.k8s.io", "watch"): "Learn when the policy of a job is changed or deleted.",
}

_OPTIONAL: Final = """
With the flag `--network-policies` ([security.md](security.md#networkpolicies)) the ClusterRole, or the Role of each
namespace that is served, also grants:
"""

_NAMESPACED_HEADER: Final = """\
# Generated from manifests/base/cluster-role.yaml by `python -m hack.generate`; do not edit.
"""

_INTRODUCTION: Final = """\
# What the operator may do

<!-- Generated from manifests/base/cluster-role.yaml and role.yaml, and from manifests/overlays/network-policies, by
`python -m hack.generate`; do not edit. -->

The ClusterRole `ddpjob-operator` grants the permissions below in all namespaces, and the Role of the same name those on
Leases in the namespace `ddpjob-system` alone, `get` and `update` only of its own Lease. Everything else is denied: the
operator cannot read secrets or ConfigMaps, or access finalizers, namespaces or custom resource definitions. Of a job's
objects, pods and services are looked up in a list, by their names, with the right that their watches need anyway; only
claims, which are never listed, it may `get`. A test compares this list with what was used according to the API
server's audit log. Discovery (`/api`, `/apis`) is open to every authenticated client. Training pods get no credentials
for the cluster.

An operator of a list of namespaces needs the first of the two in each of them only, as a Role, and the second for the
Lease of that list ([operator.md](operator.md)).
"""


def granted(*roles: Path) -> list[Permission]:
    """What the roles grant, in their order; without any, those of the operator."""
    return _permissions(
        rule for role in roles or (CLUSTER_ROLE, ROLE) for rule in yaml.safe_load(role.read_text())["rules"]
    )


def rules_for_network_policies() -> list[dict[str, Any]]:
    """What the patch for the flag --network-policies adds."""
    return [operation["value"] for operation in yaml.safe_load(NETWORK_POLICIES.read_text())]


def _permissions(rules: Iterable[dict[str, Any]]) -> list[Permission]:
    return [
        (f"{resource.partition('/')[0]}.{group}{''.join(resource.partition('/')[1:])}" if group else resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def namespaced_role() -> str:
    """The Role that grants in one namespace what the ClusterRole grants in all."""
    text = CLUSTER_ROLE.read_text()
    body = text[text.index("apiVersion:") :]
    return _NAMESPACED_HEADER + body.replace("kind: ClusterRole\n", "kind: Role\n", 1)


def permissions_page(permissions: Iterable[Permission]) -> str:
    """The page, in Markdown.

    Raises:
        KeyError: a permission is granted without a reason, or a reason is given for one that is not granted.
    """
    listed = list(permissions)
    lost = sorted(set(_REASONS) - set(listed))
    if lost:
        raise KeyError(f"hack/generate/permissions.py gives reasons for permissions that are not granted: {lost}")
    always = _table(listed, _REASONS)
    optional = _table(_permissions(rules_for_network_policies()), _WITH_NETWORK_POLICIES)
    return "\n".join([_INTRODUCTION, *always, _OPTIONAL, *optional]) + "\n"


def _table(permissions: Iterable[Permission], reasons: dict[Permission, str]) -> list[str]:
    rows = [f"| {resource} | {verb} | {reasons[resource, verb]} |" for resource, verb in permissions]
    return ["| resource | verb | why |", "|---|---|---|", *rows]
