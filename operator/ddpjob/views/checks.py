"""`ddpjob doctor`: the checks of an installation. Pure functions of the API server's answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from ddpjob.views.text import Line, Tone
from ddpjob_core.api.constants import GROUP, LEAST_KUBERNETES, PLURAL, VERSION
from ddpjob_core.api.crd import custom_resource_definition
from ddpjob_core.api.errors import ApiError, Forbidden, NotFound
from ddpjob_core.api.quantity import parse_quantity

Json: TypeAlias = dict[str, Any]
Read: TypeAlias = list[Json] | ApiError
"""Objects, or why they could not be read."""

UPGRADE_PROGRAM: Final = "pip install --upgrade 'ddpjob[cli]'"
INSTALL_CRD: Final = "kubectl apply --server-side -f manifests/crd/ddpjobs.yaml"


class Outcome(StrEnum):
    """The result of a check. WARN and MISSING do not fail an examination; only that of an installation has them."""

    OK = "OK"
    FAIL = "FAIL"
    SKIP = "SKIP"
    WARN = "WARN"
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what was checked, what was found, and what to do if it failed."""

    name: str
    outcome: Outcome
    message: str
    remedy: str = ""


def skipped(name: str, error: ApiError) -> Check:
    """A check that needs something that could not be read."""
    return Check(name, Outcome.SKIP, str(error), error.remedy if isinstance(error, Forbidden) else "")


def lacking(name: str, message: str, remedy: str, *, required: bool) -> Check:
    """A check of what an installation brings: before it, a lack of it is not a failure."""
    return Check(name, Outcome.FAIL if required else Outcome.MISSING, message, remedy)


def unseen(name: str, error: ApiError) -> Check:
    """A check without which nobody can say that an installation is sound, and that could not be made."""
    return Check(name, Outcome.FAIL, str(error), error.remedy or "use an account that may read this")


def check_api(version: Json | ApiError, server: str) -> Check:
    """Whether the API server answers, and is new enough."""
    name = "API server"
    if isinstance(version, ApiError):
        return Check(name, Outcome.FAIL, str(version), version.remedy)
    # Some providers write the minor version with a plus sign: 31+.
    numbers = [re.match(r"\d+", str(version.get(part, ""))) for part in ("major", "minor")]
    found = tuple(int(number[0]) for number in numbers if number is not None)
    if len(found) == len(numbers) and found < LEAST_KUBERNETES:
        least = ".".join(map(str, LEAST_KUBERNETES))
        return Check(
            name,
            Outcome.FAIL,
            f"Kubernetes {version.get('gitVersion', '?')} at {server} is too old",
            f"upgrade the cluster to Kubernetes {least} or newer",
        )
    return Check(name, Outcome.OK, f"Kubernetes {version.get('gitVersion', '?')} at {server}")


def check_crd(served: Json | ApiError, stored: Json | ApiError) -> Check:
    """Whether the cluster serves DDPJobs with all fields of this version.

    Args:
        served: the answer of discovery.
        stored: the CustomResourceDefinition, which not every user may read.
    """
    name = "DDPJob API"
    if isinstance(served, NotFound):
        return Check(name, Outcome.FAIL, f"the cluster does not serve {PLURAL}.{GROUP}/{VERSION}", INSTALL_CRD)
    if isinstance(served, ApiError):
        return skipped(name, served)
    if isinstance(stored, ApiError):
        return Check(name, Outcome.OK, f"{GROUP}/{VERSION} is served")
    missing = sorted(_spec_fields(custom_resource_definition()) - _spec_fields(stored))
    if missing:
        return Check(
            name,
            Outcome.FAIL,
            f"the cluster's definition is older than this program: it lacks spec.{', spec.'.join(missing)}",
            INSTALL_CRD,
        )
    return Check(name, Outcome.OK, f"{GROUP}/{VERSION} is served with all fields")


def _spec_fields(definition: Json) -> set[str]:
    for version in (definition.get("spec") or {}).get("versions") or []:
        if version.get("name") == VERSION:
            schema = ((version.get("schema") or {}).get("openAPIV3Schema") or {}).get("properties") or {}
            return set((schema.get("spec") or {}).get("properties") or {})
    return set()


def because(reason: str, message: str) -> str:
    """A reason, with its message if there is one."""
    return f"{reason}: {message}" if message else reason


@dataclass(frozen=True, slots=True)
class Right:
    """Something that the commands do, and whether the user may."""

    what: str
    allowed: bool


def check_rights(rights: Sequence[Right] | ApiError, namespace: str) -> Check:
    """Whether the user may do what the commands do."""
    name = "Permissions"
    if isinstance(rights, ApiError):
        return skipped(name, rights)
    missing = [right.what for right in rights if not right.allowed]
    if missing:
        return Check(
            name,
            Outcome.FAIL,
            f"in namespace {namespace} you may not: {', '.join(missing)}",
            "ask for a Role with these permissions",
        )
    return Check(name, Outcome.OK, f"everything that ddpjob does is allowed in namespace {namespace}")


def check_quota(quotas: Read, namespace: str) -> Check:
    """Whether a quota of the namespace is used up."""
    name = "Quota"
    if isinstance(quotas, ApiError):
        return skipped(name, quotas)
    full = [f"{metadata_of(quota)['name']}: {used}" for quota in quotas for used in _used_up(quota)]
    if full:
        return Check(
            name,
            Outcome.FAIL,
            f"used up in namespace {namespace}: {'; '.join(full)}",
            f"delete unused objects, or have the quota raised: kubectl describe quota -n {namespace}",
        )
    state = f"{len(quotas)} with room left" if quotas else "none"
    return Check(name, Outcome.OK, f"{state} in namespace {namespace}")


def _used_up(quota: Json) -> list[str]:
    status = quota.get("status") or {}
    used = status.get("used") or {}
    found = []
    for what, limit in (status.get("hard") or {}).items():
        most, now = parse_quantity(limit), parse_quantity(used.get(what, 0))
        if most is not None and now is not None and now >= most:
            found.append(f"{what} {used.get(what, 0)} of {limit}")
    return found


def check_nodes(nodes: Read) -> Check:
    """Whether there are nodes that accept pods."""
    name = "Nodes"
    if isinstance(nodes, ApiError):
        return skipped(name, nodes)
    ready = [node for node in nodes if _is_ready(node)]
    free = [node for node in ready if not (node.get("spec") or {}).get("unschedulable")]
    bad = sorted(metadata_of(node)["name"] for node in nodes if not _is_ready(node))
    state = f"{len(free)} of {len(nodes)} accept pods" + (f"; not ready: {', '.join(bad)}" if bad else "")
    if not free or bad:
        return Check(name, Outcome.FAIL, state, "kubectl describe node NAME; if it is cordoned: kubectl uncordon NAME")
    return Check(name, Outcome.OK, state)


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def check_dns(services: Read, slices: Read) -> Check:
    """Whether the cluster's DNS is ready: the ranks find each other by name.

    Args:
        services: of the cluster's DNS.
        slices: EndpointSlices of these services.
    """
    name = "DNS"
    if isinstance(services, ApiError):
        return skipped(name, services)
    if not services:
        return Check(name, Outcome.SKIP, "kube-system has no service with the label k8s-app=kube-dns")
    if isinstance(slices, ApiError):
        return skipped(name, slices)
    count = addresses(slices)
    if not count:
        return Check(
            name,
            Outcome.FAIL,
            "the cluster's DNS has no ready pod, so the ranks cannot find each other",
            "kubectl -n kube-system get pods -l k8s-app=kube-dns",
        )
    return Check(name, Outcome.OK, f"{count} address{'es' if count != 1 else ''} ready")


def addresses(slices: Sequence[Json]) -> int:
    """The number of addresses in EndpointSlices, without those that are known to be unready."""
    return sum(
        len(endpoint.get("addresses") or [])
        for each in slices
        for endpoint in each.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
    )


def metadata_of(raw: Json) -> Json:
    """An object's metadata, with question marks where it has none."""
    found = raw.get("metadata")
    return found if isinstance(found, dict) else {"name": "?", "namespace": "?"}


_TONES: Final = {
    Outcome.OK: Tone.GOOD,
    Outcome.FAIL: Tone.BAD,
    Outcome.SKIP: Tone.DIM,
    Outcome.WARN: Tone.WARN,
    Outcome.MISSING: Tone.WARN,
}


def check_lines(checks: Sequence[Check]) -> list[Line]:
    """The checks as lines."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines.append(Line(f"{check.name:<{width}}  {check.message}", check.outcome.value, _TONES[check.outcome]))
        if check.remedy and check.outcome is not Outcome.OK:
            lines.append(Line(f"{'':<{width}}  -> {check.remedy}"))
    return lines
