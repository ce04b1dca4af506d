"""What `ddpjob doctor --install` asks the API server; `ddpjob.views` says what the answers mean."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from ddpjob.cluster.client import Cluster
from ddpjob.cluster.examination import DEFINITIONS, DEPLOYMENTS, NODES, ask_health, find_operators, tried
from ddpjob.cluster.transport import Json
from ddpjob.views.checks import Check, Right, check_api
from ddpjob.views.definition_checks import check_definition
from ddpjob.views.install_checks import (
    POLICY,
    check_installed,
    check_installer,
    check_leads,
    check_policy,
    check_priority,
    check_release,
    operators_of,
)
from ddpjob.views.operator_checks import check_health, makes_network_policies
from ddpjob.views.place_checks import (
    check_gpus,
    check_monitoring,
    check_namespaces,
    check_pod_security,
    check_storage,
)
from ddpjob_core.api.constants import API_VERSION, GROUP, PLURAL
from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.resources import (
    CLAIMS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)
from ddpjob_core.api.scope import LEASE_NAMESPACE, Scope

_NAMESPACES: Final = Resource("/api/v1", "namespaces")
_ACCOUNTS: Final = Resource("/api/v1", "serviceaccounts")
_ROLES: Final = Resource("/apis/rbac.authorization.k8s.io/v1", "roles")
_ROLE_BINDINGS: Final = Resource("/apis/rbac.authorization.k8s.io/v1", "rolebindings")
_CLUSTER_ROLES: Final = Resource("/apis/rbac.authorization.k8s.io/v1", "clusterroles")
_CLUSTER_ROLE_BINDINGS: Final = Resource("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings")
_POLICIES: Final = Resource("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
_POLICY_BINDINGS: Final = Resource("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
_PRIORITY_CLASSES: Final = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses")
_STORAGE_CLASSES: Final = Resource("/apis/storage.k8s.io/v1", "storageclasses")
_MONITORS: Final = "/apis/monitoring.coreos.com/v1"
_APPLIED: Final = ("create", "patch")
# What a cluster has once, and what each operator has.
_ONCE: Final = (_NAMESPACES, DEFINITIONS, _POLICIES, _POLICY_BINDINGS, _PRIORITY_CLASSES)
_OF_OPERATOR: Final = (_ACCOUNTS, DEPLOYMENTS)
_LEASE_DURATION: Final = 10.0
_LONGEST_WAIT: Final = 60.0
"""Seconds; no operator is given a longer Lease."""

Permission = tuple[Resource, str, tuple[str, ...]]
"""Resource, subresource and verbs."""

OF_JOBS: Final[tuple[Permission, ...]] = (
    (JOBS, "", ("list", "watch", "delete")),
    (JOBS, "status", ("update",)),
    (PODS, "", ("create", "delete", "list", "patch", "watch")),
    (SERVICES, "", ("create", "list", "watch")),
    (CONFIG_MAPS, "", ("create",)),
    (CLAIMS, "", ("create", "get")),
    (SECRETS, "", ("create",)),
    (EVENTS, "", ("create",)),
)
"""What an operator may do in the namespaces that it serves: manifests/base/cluster-role.yaml."""
OF_NETWORK_POLICIES: Final[tuple[Permission, ...]] = ((NETWORK_POLICIES, "", ("create", "list", "update", "watch")),)
"""What it may do there in addition with --network-policies: manifests/overlays/network-policies/cluster-role.yaml."""
OF_LEASES: Final[tuple[Permission, ...]] = ((LEASES, "", ("create", "list", "watch")), (LEASES, "", ("get", "update")))
"""What an operator may do where the Leases are, the latter with its own alone: manifests/base/role.yaml."""
_NAMING: Final = ("get", "update")


def examine_before_and_after(cluster: Cluster, scope: Scope, *, monitoring: bool) -> list[Check]:
    """The checks of a cluster on which an operator is to be installed, or is.

    If the API server does not answer, there is nothing else to check.

    Args:
        cluster: as the one who installs sees it.
        scope: what the operator serves: all namespaces, or the one of `cluster`.
        monitoring: whether the Prometheus operator is to scrape it.
    """
    version = tried(lambda: cluster.json("/version"))
    api = check_api(version, cluster.server)
    if isinstance(version, ApiError):
        return [api]
    deployments, pods = find_operators(cluster, DEPLOYMENTS), find_operators(cluster, PODS)
    leases = find_operators(cluster, LEASES)
    namespaces = tried(lambda: _namespaces(cluster, scope))
    nodes = tried(lambda: cluster.find(NODES, None))
    serving = operators_of(scope, deployments)
    installed = bool(serving)
    of_jobs = (*OF_JOBS, *(OF_NETWORK_POLICIES if any(map(makes_network_policies, serving)) else ()))
    required = installed or scope != Scope()
    checks = [
        api,
        check_definition(
            tried(lambda: cluster.get(DEFINITIONS, None, f"{PLURAL}.{GROUP}")),
            tried(lambda: cluster.json(f"/apis/{API_VERSION}")),
            required=required,
        ),
        check_installer(tried(lambda: list(_rights(cluster, scope, of_jobs))), installed=installed),
        check_namespaces(namespaces, scope, installed=installed),
        check_policy(
            tried(lambda: cluster.get(_POLICIES, None, POLICY)),
            tried(lambda: cluster.find(_POLICY_BINDINGS, None)),
            required=required,
        ),
        check_priority(tried(lambda: cluster.find(_PRIORITY_CLASSES, None)), deployments, scope),
        check_installed(deployments, pods, scope),
        check_leads(leases, _renewals(cluster, leases), deployments, scope),
        check_release(leases, scope),
        check_health(ask_health(cluster, pods)),
        check_pod_security(namespaces, scope),
        check_storage(tried(lambda: cluster.find(_STORAGE_CLASSES, None))),
        check_gpus(nodes),
    ]
    return [*checks, check_monitoring(tried(lambda: cluster.json(_MONITORS)))] if monitoring else checks


def _namespaces(cluster: Cluster, scope: Scope) -> list[Json]:
    if scope.namespaces is None:
        return cluster.find(_NAMESPACES, None)
    found = []
    for name in sorted({LEASE_NAMESPACE, *scope.namespaces}):
        try:
            found.append(cluster.get(_NAMESPACES, None, name))
        except NotFound:
            continue
    return found


def _rights(cluster: Cluster, scope: Scope, of_jobs: tuple[Permission, ...]) -> Iterator[Right]:
    """What it takes to install an operator, and whether the user may."""
    wide = scope == Scope()
    for resource in _ONCE if wide else ():
        yield from _applying(cluster, resource, None)
    for resource in _OF_OPERATOR:
        yield from _applying(cluster, resource, LEASE_NAMESPACE)
    if wide:
        yield from _granting(cluster, of_jobs, _CLUSTER_ROLES, _CLUSTER_ROLE_BINDINGS, None)
    else:
        yield from _granting(cluster, of_jobs, _ROLES, _ROLE_BINDINGS, cluster.namespace)
    yield from _granting(cluster, OF_LEASES, _ROLES, _ROLE_BINDINGS, LEASE_NAMESPACE, only=scope.lease)


def _applying(cluster: Cluster, resource: Resource, place: str | None) -> Iterator[Right]:
    for verb in _APPLIED:
        yield Right(f"{verb} {resource.plural}{_in(place)}", cluster.may(verb, resource, place))


def _granting(
    cluster: Cluster,
    granted: tuple[Permission, ...],
    roles: Resource,
    bindings: Resource,
    place: str | None,
    *,
    only: str = "",
) -> Iterator[Right]:
    yield from _applying(cluster, roles, place)
    yield from _applying(cluster, bindings, place)
    # Nobody can grant what they may not do themselves, except by these two verbs.
    if cluster.may("escalate", roles, place) and cluster.may("bind", roles, place):
        return
    for resource, subresource, verbs in granted:
        what = f"{resource.plural}/{subresource}" if subresource else resource.plural
        for verb in verbs:
            name = only if verb in _NAMING else ""
            allowed = cluster.may(verb, resource, place, subresource=subresource, name=name)
            yield Right(f"{verb} {what}{_in(place)}, which you would grant", allowed)


def _in(place: str | None) -> str:
    return f" in {place}" if place else ""


def _renewals(cluster: Cluster, leases: list[Json] | ApiError) -> dict[str, bool | ApiError]:
    """Whether the Leases that are held change while they last: the times in them are by another machine's clock."""
    held: dict[str, list[Json]] = {}
    for lease in leases if isinstance(leases, list) else ():
        if (lease.get("spec") or {}).get("holderIdentity"):
            held.setdefault(lease["metadata"]["namespace"], []).append(lease)
    found: dict[str, bool | ApiError] = {}
    for place, listed in held.items():
        renewed = tried(partial(_renewed, cluster, place, listed))
        for name in (lease["metadata"]["name"] for lease in listed):
            found[name] = renewed if isinstance(renewed, ApiError) else name in renewed
    return found


def _renewed(cluster: Cluster, place: str, leases: list[Json]) -> set[str]:
    """Names of Leases that are seen to change."""
    versions = {lease["metadata"]["name"]: lease["metadata"]["resourceVersion"] for lease in leases}
    seconds = max(float(lease["spec"].get("leaseDurationSeconds") or _LEASE_DURATION) for lease in leases)
    found: set[str] = set()
    # From the present state on, with which it begins: the versions may be too old to watch from.
    for event in cluster.watch(LEASES, place, fields="", since="", seconds=min(seconds, _LONGEST_WAIT)):
        metadata = event.object["metadata"]
        changed = metadata["resourceVersion"] != versions.get(metadata["name"], metadata["resourceVersion"])
        if changed and event.type != "DELETED" and (event.object.get("spec") or {}).get("holderIdentity"):
            found.add(metadata["name"])
        if len(found) == len(versions):
            break
    return found
