"""docs/rbac.md: what the operator may do, and why."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from hack.cache import ROOT

CLUSTER_ROLE: Final = ROOT / "manifests/base/cluster-role.yaml"

Permission = tuple[str, str]
"""Resource (with its group, if it has one) and verb."""

_REASONS: Final[dict[Permission, str]] = {
    ("ddpjobs.ddpjob.dev", "list"): "Read all jobs at the start, and again where a watch was broken for too long.",
    ("ddpjobs.ddpjob.dev", "watch"): "Hear of new, changed and deleted jobs.",
    ("ddpjobs.ddpjob.dev", "delete"): "Delete a finished job when spec.ttlSecondsAfterFinished has passed.",
    ("ddpjobs.ddpjob.dev/status", "update"): "Write the status; the rest of a job is never written.",
    ("pods", "create"): "Make one pod for each node of a training.",
    ("pods", "delete"): "End an attempt on restart and suspension, and clean up after the end.",
    ("pods", "get"): "See who holds a name that is taken, and find a pod that has lost its labels.",
    ("pods", "list"): "Read the pods of all jobs at the start, and again where a watch was broken for too long.",
    ("pods", "watch"): "Hear how the pods fare.",
    ("services", "create"): "Make the headless service through which the nodes of a job find each other.",
    ("services", "get"): "See who holds a name that is taken.",
    (
        "services",
        "list",
    ): "Read the services of all jobs at the start, and again where a watch was broken for too long.",
    ("services", "watch"): "Know a job's service when it is there, and hear when a name that was taken is free.",
    ("configmaps", "create"): "Bring the launcher into the pods. None is listed, and only a job's own is read.",
    ("configmaps", "get"): "See who holds a name that is taken.",
    ("persistentvolumeclaims", "create"): "Make the claim for checkpoints that spec.checkpoint.size asks for.",
    ("persistentvolumeclaims", "get"): "Use again a claim that was kept for a job of the same name.",
    ("secrets", "create"): "Make the ssh key of a job whose launcher is mpirun. None is ever read, not even that one.",
    ("events", "create"): "Tell what happens to a job in `kubectl describe ddpjob`.",
}

_INTRODUCTION: Final = """\
# What the operator may do

<!-- Generated from manifests/base/cluster-role.yaml by `python -m hack.generate`; do not edit. -->

All of it in every namespace, by the ClusterRole `ddpjob-operator`. What is not here is refused: no secret can be read,
nothing is patched, no finalizers, no namespaces, no custom resource definitions. A test compares this list with what
the API server's audit log says was used. Discovery (`/api`, `/apis`) is open to every authenticated client. Training
pods get no credential of the cluster.
"""


def granted(role: Path = CLUSTER_ROLE) -> list[Permission]:
    """What the ClusterRole grants, in its order."""
    rules = yaml.safe_load(role.read_text())["rules"]
    return [
        (f"{resource.partition('/')[0]}.{group}{''.join(resource.partition('/')[1:])}" if group else resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def permissions_page(permissions: Iterable[Permission]) -> str:
    """The page, in Markdown.

    Raises:
        KeyError: something is granted without a reason, or a reason is left of something that is not.
    """
    listed = list(permissions)
    lost = sorted(set(_REASONS) - set(listed))
    if lost:
        raise KeyError(f"hack/generate/permissions.py gives reasons for what is not granted: {lost}")
    rows = [f"| {resource} | {verb} | {_REASONS[resource, verb]} |" for resource, verb in listed]
    return "\n".join([_INTRODUCTION, "| resource | verb | why |", "|---|---|---|", *rows]) + "\n"
