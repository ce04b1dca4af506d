"""`ddpjob doctor --install`: what the operators of an installation need, and how they are."""

from collections.abc import Mapping, Sequence
from typing import Final

from ddpjob.views.checks import (
    UPGRADE_PROGRAM,
    Check,
    Json,
    Outcome,
    Read,
    Right,
    lacking,
    metadata_of,
    skipped,
    unseen,
)
from ddpjob.views.operator_checks import INSTALL_OPERATOR, check_operator, holder_of, place_of, served_scope
from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.release import ANNOTATION_RELEASE, RELEASE
from ddpjob_core.api.scope import Scope, scope_of_lease

POLICY: Final = "ddpjob-pods"
PRIORITY_CLASS: Final = "ddpjob-critical"

_INSTALL_POLICY: Final = "kubectl apply -f manifests/base/admission-policy.yaml"
_INSTALL_CLASS: Final = "kubectl apply -f manifests/base/priority-class.yaml"
_APART: Final = "give each operator namespaces of its own: docs/operator.md#overlapping-scopes"
_NAMED: Final = 8
_LONGEST_RELEASE: Final = 40


def operators_of(scope: Scope, deployments: Read) -> list[Json]:
    """The deployments that serve all of a scope. One whose arguments do not say what it serves may."""
    listed = deployments if isinstance(deployments, list) else []
    scopes = [(each, served_scope(each)) for each in listed]
    return [each for each, served in scopes if served is None or served.common(scope) == scope]


def check_installer(rights: Sequence[Right] | ApiError, *, installed: bool) -> Check:
    """Whether the user may install, and upgrade what is installed.

    Args:
        rights: what that takes.
        installed: whether it is: then a lack is no more than a warning.
    """
    name = "Permissions"
    if isinstance(rights, ApiError):
        return skipped(name, rights)
    denied = [right.what for right in rights if not right.allowed]
    if not denied:
        return Check(name, Outcome.OK, f"you may {'upgrade' if installed else 'install'} the operator")
    more = f" and {len(denied) - _NAMED} more" if len(denied) > _NAMED else ""
    said = f"to {'upgrade' if installed else 'install'}, you lack: {', '.join(denied[:_NAMED])}{more}"
    remedy = "have an administrator do it; with permissions in some namespaces only, see docs/install.md and use -n"
    return Check(name, Outcome.WARN if installed else Outcome.FAIL, said, remedy)


def check_installed(deployments: Read, pods: Read, scope: Scope) -> Check:
    """Whether an operator of this scope is there and ready, or whether another one stands in the way of it.

    Args:
        deployments: those with the operator's label.
        pods: those with the operator's label.
        scope: what is to be served.
    """
    name = "Operator"
    if isinstance(deployments, ApiError):
        return unseen(name, deployments)
    if operators_of(scope, deployments):
        return check_operator([each for each in deployments if _touches(served_scope(each), scope)], pods)
    for each in deployments:
        served = served_scope(each)
        common = served.common(scope) if served is not None else None
        if common is not None:
            said = f"{place_of(each)} serves {common}: an operator of {scope} would stand by"
            return Check(name, Outcome.FAIL, said, _APART)
    wide = scope == Scope()
    return Check(
        name,
        Outcome.MISSING,
        f"no operator of {scope} is installed",
        INSTALL_OPERATOR if wide else "helm install ddpjob manifests/chart/ddpjob --values FILE: docs/install.md",
    )


def check_leads(leases: Read, renewed: Mapping[str, bool | ApiError], deployments: Read, scope: Scope) -> Check:
    """Whether an operator holds the Lease of each scope that is served, and renews it.

    Args:
        leases: those with the operator's label.
        renewed: for each that is held whether it was seen to be renewed in time, by its name.
        deployments: those with the operator's label.
        scope: what is to be served.
    """
    name = "Leader"
    if isinstance(leases, ApiError):
        return unseen(name, leases)
    installed = operators_of(scope, deployments)
    known = not isinstance(deployments, list) or any(_touches(served_scope(each), scope) for each in deployments)
    held = _held(leases, scope)
    for lease, raw in held.items():
        wrong = _doubt(name, lease, raw, renewed=renewed.get(lease, False), installed=bool(installed), known=known)
        if wrong is not None:
            return wrong
    if not installed:
        return Check(name, Outcome.SKIP, f"no operator of {scope} is installed")
    wanted = {str(served): served.lease for each in installed if (served := served_scope(each)) is not None}
    without = [served for served, lease in wanted.items() if lease not in held]
    if without or not held:
        said = f"no operator holds the Lease for {' and for '.join(without) or scope}: no job is started or checked"
        return Check(name, Outcome.FAIL, said, "see the operator's log: it says why it does not lead")
    return Check(name, Outcome.OK, f"{', '.join(map(_described, held.values()))} renews its Lease")


def _doubt(name: str, lease: str, raw: Json, *, renewed: bool | ApiError, installed: bool, known: bool) -> Check | None:
    """What is wrong about a Lease that is held."""
    if isinstance(renewed, ApiError):
        return unseen(name, renewed)
    if installed and not renewed:
        said = f"the Lease {lease} is not renewed: {_described(raw)} does not lead any more"
        remedy = "see the operator's log and /healthz; Kubernetes restarts it if it hangs"
        return Check(name, Outcome.FAIL, said, remedy)
    if renewed and not known:
        said = f"{_described(raw)} leads, and belongs to no Deployment of this cluster"
        return Check(name, Outcome.FAIL, said, f"end it, or {_APART}")
    return None


def check_release(leases: Read, scope: Scope) -> Check:
    """Whether the operators that lead are of this program's version, which they write into their Leases.

    Args:
        leases: those with the operator's label.
        scope: what is to be served.
    """
    name = "Version"
    if isinstance(leases, ApiError):
        return skipped(name, leases)
    held = _held(leases, scope)
    if not held:
        return Check(name, Outcome.SKIP, "no operator leads")
    said = {lease: (metadata_of(raw).get("annotations") or {}).get(ANNOTATION_RELEASE) for lease, raw in held.items()}
    for lease, release in said.items():
        if release != RELEASE:
            found = f"is {release}" if release else "does not say its version, and so is an older one"
            message = f"the operator that holds {lease} {found}; this program is {RELEASE}"
            newer = release is not None and _numbers(release) > _numbers(RELEASE)
            remedy = UPGRADE_PROGRAM if newer else "upgrade the operator: docs/install.md#upgrade"
            return Check(name, Outcome.WARN, message, remedy)
    return Check(name, Outcome.OK, f"operator and program are {RELEASE}")


def check_policy(policy: Json | ApiError, bindings: Read, *, required: bool) -> Check:
    """Whether the policy decides who may have the operator create which pods.

    Args:
        policy: of the name `POLICY`.
        bindings: of all policies.
        required: whether there is an operator, or is to be one that does not come with the policy.
    """
    name = "Admission policy"
    if isinstance(policy, NotFound):
        if not required:
            return Check(name, Outcome.MISSING, f"there is no policy {POLICY}", _INSTALL_POLICY)
        said = f"there is no policy {POLICY}: unless that is on purpose, anyone who may create DDPJobs can have any pod"
        return Check(name, Outcome.WARN, said, _INSTALL_POLICY)
    if isinstance(policy, ApiError):
        return skipped(name, policy)
    if isinstance(bindings, ApiError):
        return skipped(name, bindings)
    specs = [each.get("spec") or {} for each in bindings]
    ours = [spec for spec in specs if spec.get("policyName") == POLICY]
    if not any("Deny" in (spec.get("validationActions") or []) for spec in ours):
        what = "refuses nothing: its bindings only warn or audit" if ours else "has no binding, so it decides nothing"
        return Check(name, Outcome.WARN, f"the policy {POLICY} {what}", _INSTALL_POLICY)
    return Check(name, Outcome.OK, f"{POLICY} decides who may have the operator create which pods")


def check_priority(classes: Read, deployments: Read, scope: Scope) -> Check:
    """Whether the priority classes exist that the operators' pods name, or will name: without them no pod is created.

    Args:
        classes: all of the cluster.
        deployments: those with the operator's label.
        scope: what is to be served.
    """
    name = "Priority class"
    if isinstance(classes, ApiError):
        return skipped(name, classes)
    installed = operators_of(scope, deployments)
    wanted = {_priority_of(each) for each in installed} if installed else {PRIORITY_CLASS}
    missing = sorted(wanted - {metadata_of(each)["name"] for each in classes} - {""})
    if missing:
        said = f"there is no priority class {', '.join(missing)}, which the operator's pods need to be created"
        required = bool(installed) or scope != Scope()
        return lacking(name, said, _INSTALL_CLASS, required=required)
    return Check(name, Outcome.OK, ", ".join(sorted(wanted - {""})) or "the operator's pods name none")


def _touches(served: Scope | None, scope: Scope) -> bool:
    return served is None or served.common(scope) is not None


def _held(leases: Sequence[Json], scope: Scope) -> dict[str, Json]:
    """Leases that a process holds and that stand for some of a scope, by their names."""
    found = {metadata_of(each)["name"]: each for each in leases if (each.get("spec") or {}).get("holderIdentity")}
    return {name: each for name, each in found.items() if _touches(_led(each), scope)}


def _led(lease: Json) -> Scope | None:
    metadata = metadata_of(lease)
    return scope_of_lease(metadata["name"], metadata.get("annotations"))


def _described(lease: Json) -> str:
    return holder_of(lease, _led(lease))


def _numbers(release: str) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in release[:_LONGEST_RELEASE].split(".")]


def _priority_of(deployment: Json) -> str:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return str(pod.get("priorityClassName") or "")
