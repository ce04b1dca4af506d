"""`ddpjob doctor --install`: what else a cluster has that jobs and their monitoring need."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ddpjob.views.checks import Check, Json, Outcome, Read, lacking, metadata_of, skipped
from ddpjob_core.api.accelerators import accelerator_of
from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.quantity import parse_quantity
from ddpjob_core.api.scope import LEASE_NAMESPACE, Scope, names_of

_CREATE_NAMESPACE: Final = "kubectl apply -f manifests/base/namespace.yaml"
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_MONITORS: Final = ("podmonitors", "prometheusrules")


def check_namespaces(namespaces: Read, scope: Scope, *, installed: bool) -> Check:
    """Whether the namespaces exist that are to be served, and the one of the Leases.

    Args:
        namespaces: those that exist.
        scope: what is to be served.
        installed: whether an operator is.
    """
    name = "Namespaces"
    if isinstance(namespaces, ApiError):
        return skipped(name, namespaces)
    there = {metadata_of(each)["name"] for each in namespaces}
    missing = sorted((scope.namespaces or frozenset()) - there)
    if missing:
        remedy = f"kubectl create namespace {missing[0]}"
        return Check(name, Outcome.FAIL, f"there is no namespace {names_of(missing)}", remedy)
    if LEASE_NAMESPACE not in there:
        said = f"there is no namespace {LEASE_NAMESPACE}, which has the Leases of all operators"
        return lacking(name, said, _CREATE_NAMESPACE, required=installed or scope != Scope())
    return Check(name, Outcome.OK, f"there: {names_of({LEASE_NAMESPACE, *(scope.namespaces or ())})}")


def check_pod_security(namespaces: Read, scope: Scope) -> Check:
    """Which namespaces with jobs enforce a level of Pod Security that only a plain job meets.

    Args:
        namespaces: those that exist.
        scope: what is to be served.
    """
    name = "Pod Security"
    if isinstance(namespaces, ApiError):
        return skipped(name, namespaces)
    labels = {metadata_of(each)["name"]: metadata_of(each).get("labels") or {} for each in namespaces}
    strict = [each for each in _of_jobs(labels, scope) if labels[each].get(_ENFORCED) == "restricted"]
    if strict:
        barred = "a job that asks for root, for the host network or the like gets no pods there"
        return Check(name, Outcome.OK, f"{names_of(strict)} enforces restricted: {barred}")
    where = "no namespace with jobs" if scope == Scope() else f"none of {scope}"
    return Check(name, Outcome.OK, f"{where} enforces restricted")


def _of_jobs(namespaces: Iterable[str], scope: Scope) -> list[str]:
    others = (LEASE_NAMESPACE, "kube-system", "kube-public", "kube-node-lease")
    return sorted(each for each in namespaces if each in scope and (each not in others or scope != Scope()))


def check_storage(classes: Read) -> Check:
    """Whether a claim for checkpoints without a storage class gets a volume.

    Args:
        classes: the storage classes of the cluster.
    """
    name = "Storage class"
    if isinstance(classes, ApiError):
        return skipped(name, classes)
    default = [each for each in classes if (metadata_of(each).get("annotations") or {}).get(_DEFAULT_CLASS) == "true"]
    if not default:
        there = f"of {names_of(metadata_of(each)['name'] for each in classes)}" if classes else "there is none, so"
        said = (
            f"{there} none is the default: a job with spec.checkpoint.size must name spec.checkpoint.storageClassName"
        )
        remedy = f"kubectl annotate storageclass NAME {_DEFAULT_CLASS}=true"
        return Check(name, Outcome.WARN, said, remedy)
    named = ", ".join(f"{metadata_of(each)['name']} ({each.get('provisioner', '?')})" for each in default)
    return Check(name, Outcome.OK, f"{named} is the default")


def check_gpus(nodes: Read) -> Check:
    """The GPUs that nodes advertise. Without any, jobs train on CPUs.

    Args:
        nodes: of the cluster.
    """
    name = "GPUs"
    if isinstance(nodes, ApiError):
        return skipped(name, nodes)
    total: Counter[str] = Counter()
    having: Counter[str] = Counter()
    for node in nodes:
        for resource, text in ((node.get("status") or {}).get("allocatable") or {}).items():
            count = int(parse_quantity(text) or 0) if accelerator_of(resource) is not None else 0
            if count:
                total[resource] += count
                having[resource] += 1
    if not total:
        return Check(name, Outcome.OK, f"none of {_nodes(len(nodes))} advertises any: jobs train on CPUs")
    said = ", ".join(f"{total[each]} {each} on {_nodes(having[each])}" for each in sorted(total))
    return Check(name, Outcome.OK, said)


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def check_monitoring(served: Json | ApiError) -> Check:
    """Whether the cluster has the kinds of objects by which the Prometheus operator is configured.

    Args:
        served: the answer of discovery on its API.
    """
    name = "Monitoring"
    if isinstance(served, ApiError) and not isinstance(served, NotFound):
        return skipped(name, served)
    there = [] if isinstance(served, NotFound) else [each.get("name") for each in served.get("resources") or []]
    missing = [each for each in _MONITORS if each not in there]
    if missing:
        said = f"the cluster does not serve {' and '.join(missing)} of the Prometheus operator"
        return Check(
            name, Outcome.FAIL, said, "install the Prometheus operator, or scrape without it: docs/monitoring.md"
        )
    return Check(name, Outcome.OK, "PodMonitors and PrometheusRules are served")
