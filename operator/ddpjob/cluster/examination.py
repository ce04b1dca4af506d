"""What `ddpjob doctor` asks the API server; `ddpjob.views.checks` says what the answers mean."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.jobs import pods_of
from ddpjob.cluster.transport import Json
from ddpjob.views.checks import (
    Check,
    Right,
    check_api,
    check_crd,
    check_dns,
    check_nodes,
    check_quota,
    check_rights,
)
from ddpjob.views.job import Job, JobEvent, event_of
from ddpjob.views.job_checks import Findings, check_job
from ddpjob.views.operator_checks import check_health, check_leader, check_operator
from ddpjob_core.api.constants import API_VERSION, GROUP, LABEL_NAME, OPERATOR_NAME, PLURAL
from ddpjob_core.api.errors import ApiError, Forbidden
from ddpjob_core.api.resources import CONFIG_MAPS, EVENTS, JOBS, LEASES, PODS, SERVICES, Resource
from ddpjob_core.api.scope import LEASE_NAMESPACE

T = TypeVar("T")

DEPLOYMENTS: Final = Resource("/apis/apps/v1", "deployments")
DEFINITIONS: Final = Resource("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
_SLICES: Final = Resource("/apis/discovery.k8s.io/v1", "endpointslices")
_QUOTAS: Final = Resource("/api/v1", "resourcequotas")
NODES: Final = Resource("/api/v1", "nodes")
_OPERATOR: Final = f"{LABEL_NAME}={OPERATOR_NAME}"
_OPERATOR_PORT: Final = 8080
_MOST_ASKED: Final = 16
"""Pods of operators: a few shards with a standby each."""
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
# What the commands do.
_RIGHTS: Final = (
    *((verb, JOBS, "", f"{verb} ddpjobs") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("create", PODS, "", "create pods (every job: the policy ddpjob-pods)"),
    ("create", CONFIG_MAPS, "", "create configmaps (run SCRIPT)"),
    ("list", PODS, "", "list pods (logs, why)"),
    ("get", PODS, "log", "get pods/log (logs)"),
    ("list", EVENTS, "", "list events (why)"),
)


def examine_installation(cluster: Cluster) -> list[Check]:
    """The checks of an installation; if the API server does not answer, there is nothing else to check."""
    version = tried(lambda: cluster.json("/version"))
    api = check_api(version, cluster.server)
    if isinstance(version, ApiError):
        return [api]
    deployments, pods = find_operators(cluster, DEPLOYMENTS), find_operators(cluster, PODS)
    dns = tried(lambda: cluster.find(SERVICES, "kube-system", labels="k8s-app=kube-dns"))
    return [
        api,
        check_crd(
            tried(lambda: cluster.json(f"/apis/{API_VERSION}")),
            tried(lambda: cluster.get(DEFINITIONS, None, f"{PLURAL}.{GROUP}")),
        ),
        check_operator(deployments, pods),
        check_leader(find_operators(cluster, LEASES), deployments, cluster.namespace),
        check_health(ask_health(cluster, pods)),
        check_rights(tried(lambda: _rights(cluster)), cluster.namespace),
        check_quota(tried(lambda: cluster.find(_QUOTAS, cluster.namespace)), cluster.namespace),
        check_nodes(tried(lambda: cluster.find(NODES, None))),
        check_dns(dns, _dns_slices(cluster, dns)),
    ]


def examine_job(cluster: Cluster, job: Job, now: datetime) -> list[Check]:
    """The checks of one job."""
    label = f"{_SERVICE_LABEL}={job.name}"
    return check_job(
        Findings(
            job=job,
            pods=tried(lambda: pods_of(cluster, job)),
            service=tried(lambda: cluster.get(SERVICES, job.namespace, job.name)),
            slices=tried(lambda: cluster.find(_SLICES, job.namespace, labels=label)),
            warnings=tried(lambda: _warnings(cluster, job.namespace)),
            now=now,
        )
    )


def tried(read: Callable[[], T]) -> T | ApiError:
    """What a request returns, or why it failed."""
    try:
        return read()
    except ApiError as error:
        return error


def find_operators(cluster: Cluster, resource: Resource, *, place: str = LEASE_NAMESPACE) -> list[Json] | ApiError:
    """Objects with the operator's label.

    Args:
        cluster: as the user sees it.
        resource: kind of object.
        place: where to look if the user may not look everywhere.
    """
    found = tried(lambda: cluster.find(resource, None, labels=_OPERATOR))
    if isinstance(found, Forbidden):
        return tried(lambda: cluster.find(resource, place, labels=_OPERATOR))
    return found


def ask_health(cluster: Cluster, pods: list[Json] | ApiError) -> dict[str, str | ApiError] | ApiError:
    """The answers of /readyz of the operators' pods, by their names."""
    if isinstance(pods, ApiError):
        return pods
    running = [pod["metadata"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    return {pod["name"]: tried(partial(_readiness, cluster, pod)) for pod in running[:_MOST_ASKED]}


def _readiness(cluster: Cluster, pod: Json) -> str:
    return cluster.text(PODS.path(pod["namespace"], f"{pod['name']}:{_OPERATOR_PORT}", "proxy/readyz"))


def _rights(cluster: Cluster) -> list[Right]:
    return [
        Right(what, cluster.may(verb, resource, cluster.namespace, subresource=subresource))
        for verb, resource, subresource, what in _RIGHTS
    ]


def _dns_slices(cluster: Cluster, services: list[Json] | ApiError) -> list[Json] | ApiError:
    if isinstance(services, ApiError) or not services:
        return []
    label = f"{_SERVICE_LABEL}={services[0]['metadata']['name']}"
    return tried(lambda: cluster.find(_SLICES, "kube-system", labels=label))


def _warnings(cluster: Cluster, namespace: str) -> list[tuple[str, JobEvent]]:
    raws = cluster.find(EVENTS, namespace, fields="involvedObject.kind=Pod,type=Warning")
    return [(str((raw.get("involvedObject") or {}).get("name")), event_of(raw)) for raw in raws]
