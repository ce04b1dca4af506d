"""`ddpjob doctor`: the checks of the operators. Pure functions of the API server's answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from ddpjob.views.checks import Check, Json, Outcome, Read, because, metadata_of, skipped
from ddpjob_core.api.errors import ApiError, Forbidden, NotFound
from ddpjob_core.api.scope import Scope, ScopeError, scope_of_lease

INSTALL_OPERATOR: Final = "kubectl apply -k manifests/base"

NETWORK_POLICIES_FLAG: Final = "--network-policies"
_FLAG: Final = "--namespace"
_OF_THE_SERVER: Final = re.compile(r"^the API server (is unavailable|\S+ cannot be reached): ")


def check_operator(deployments: Read, pods: Read) -> Check:
    """Whether operators are installed and ready, and no two serve the same jobs.

    Args:
        deployments: those with the operator's label.
        pods: those with the operator's label.
    """
    name = "Operator"
    if isinstance(deployments, ApiError):
        return skipped(name, deployments)
    if not deployments:
        return Check(name, Outcome.FAIL, "the operator is not installed: it has no deployment", INSTALL_OPERATOR)
    for one, other in combinations(deployments, 2):
        common = _common(one, other)
        if common is not None:
            return Check(
                name,
                Outcome.FAIL,
                f"{place_of(one)} and {place_of(other)} both serve {common}: one stands by while the other serves them",
                f"keep one deployment, or give each {_FLAG} lists of its own; for a standby: kubectl apply -k "
                "manifests/overlays/high-availability",
            )
    for each in deployments:
        if not (each.get("status") or {}).get("readyReplicas", 0):
            where = metadata_of(each)
            remedy = f"kubectl -n {where['namespace']} describe deployment,pods; kubectl -n {where['namespace']} logs "
            return Check(
                name,
                Outcome.FAIL,
                f"{place_of(each)} has no ready pod{_why_not_ready(where['name'], pods)}",
                f"{remedy}deployment/{where['name']}",
            )
    ready = "is ready" if len(deployments) == 1 else "are ready"
    return Check(name, Outcome.OK, f"{', '.join(map(_described, deployments))} {ready}")


def check_leader(leases: Read, deployments: Read, namespace: str) -> Check:
    """Which operators lead, and whether one serves this namespace.

    Args:
        leases: those with the operator's label.
        deployments: those with the operator's label.
        namespace: the user's.
    """
    name = "Leader"
    if isinstance(leases, ApiError):
        return skipped(name, leases)
    held = {metadata_of(each)["name"]: each for each in leases if (each.get("spec") or {}).get("holderIdentity")}
    missing = [str(scope) for scope in _scopes(deployments) if scope.lease not in held]
    if missing or not held:
        whose = f" for {' and for '.join(missing)}" if held else ""
        return Check(
            name,
            Outcome.FAIL,
            f"no operator holds the Lease{whose}: no job is started or checked",
            "see the operator's log: it says why it does not lead",
        )
    led = {lease: scope_of_lease(lease, metadata_of(each).get("annotations")) for lease, each in held.items()}
    holders = ", ".join(holder_of(each, led[lease]) for lease, each in held.items())
    if any(scope is None or namespace in scope for scope in led.values()):
        return Check(name, Outcome.OK, holders)
    return Check(
        name,
        Outcome.FAIL,
        f"no operator serves namespace {namespace}: {holders}",
        f"use a namespace that is served (-n), or add this one to {_FLAG} of an operator: docs/operator.md",
    )


def check_health(answers: Mapping[str, str | ApiError] | ApiError) -> Check:
    """What the operators themselves report about their watches and their queues.

    Args:
        answers: of the /readyz of each running pod, by its name, through the API server; or why there are none.
    """
    name = "Operator's health"
    if isinstance(answers, ApiError):
        return skipped(name, answers)
    if not answers:
        return Check(name, Outcome.SKIP, "there is no ready pod to ask")
    checks = [_health(name, answer, f"{pod}: " if len(answers) > 1 else "") for pod, answer in answers.items()]
    worst = min(checks, key=lambda check: (Outcome.FAIL, Outcome.SKIP, Outcome.OK).index(check.outcome))
    if worst.outcome is Outcome.OK and len(checks) > 1:
        return Check(name, Outcome.OK, f"/readyz of {len(checks)} pods returns ok")
    return worst


def _health(name: str, answer: str | ApiError, pod: str) -> Check:
    if isinstance(answer, Forbidden | NotFound):
        return skipped(name, answer)
    if isinstance(answer, ApiError):
        # Asked through the API server, which itself answers, as another check has shown.
        why = _OF_THE_SERVER.sub("", str(answer))
        return Check(
            name,
            Outcome.FAIL,
            f"{pod}the operator does not answer as it should: {why}",
            "see the operator's log; Kubernetes restarts it if it hangs; a NetworkPolicy may keep this check out",
        )
    said, *remarks = answer.split("\n")
    remarks = list(filter(None, remarks))
    if remarks:
        return Check(
            name,
            Outcome.FAIL,
            f"{pod}{'; '.join(remarks)}",
            f"give the operator the Role of manifests/overlays/namespaces in that namespace, or change its {_FLAG}",
        )
    return Check(name, Outcome.OK, f"/readyz returns {said}")


def holder_of(lease: Json, scope: Scope | None) -> str:
    """Who holds a Lease, in which term and for which namespaces."""
    spec = lease["spec"]
    served = f", {scope or 'namespaces unknown'}" if scope != Scope() else ""
    return f"{str(spec['holderIdentity']).partition('_')[0]} (term {spec.get('leaseTransitions', 0)}{served})"


def _scopes(deployments: Read) -> Iterator[Scope]:
    for each in deployments if isinstance(deployments, list) else ():
        scope = served_scope(each)
        if scope is not None:
            yield scope


def _common(one: Json, other: Json) -> Scope | None:
    scope, others = served_scope(one), served_scope(other)
    return None if scope is None or others is None else scope.common(others)


def served_scope(deployment: Json) -> Scope | None:
    """The scope of an operator as its arguments say it, None where they cannot be read, such as with variables."""
    try:
        return Scope.parse(list(_values(_arguments(deployment))))
    except ScopeError:
        return None


def makes_network_policies(deployment: Json) -> bool:
    """Whether an operator creates a NetworkPolicy for each job."""
    return NETWORK_POLICIES_FLAG in _arguments(deployment)


def _arguments(deployment: Json) -> list[str]:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return [
        str(argument)
        for container in pod.get("containers") or []
        for argument in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]


def _values(arguments: Sequence[str]) -> Iterator[str]:
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{_FLAG}="):
            yield argument.removeprefix(f"{_FLAG}=")
        elif argument == _FLAG:
            yield from arguments[place + 1 : place + 2]


def place_of(deployment: Json) -> str:
    """Namespace and name."""
    where = metadata_of(deployment)
    return f"{where['namespace']}/{where['name']}"


def _described(deployment: Json) -> str:
    scope = served_scope(deployment)
    return place_of(deployment) if scope == Scope() else f"{place_of(deployment)} ({scope or 'namespaces unknown'})"


def _why_not_ready(deployment: str, pods: Read) -> str:
    listed = pods if isinstance(pods, list) else []
    # Those of this deployment first, by the name that it gives them.
    for pod in sorted(listed, key=lambda each: not str(metadata_of(each)["name"]).startswith(f"{deployment}-")):
        for state in (pod.get("status") or {}).get("containerStatuses") or []:
            waiting = (state.get("state") or {}).get("waiting") or {}
            if waiting.get("reason"):
                return f": {metadata_of(pod)['name']}: {because(waiting['reason'], waiting.get('message', ''))}"
    return ""
