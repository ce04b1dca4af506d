"""Label selectors, and whom the peers of a policy stand for."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from network_policy.objects import Json, Pod


class NotUnderstoodError(Exception):
    """A part of a policy that this program does not know; the text names it."""


_KEYS: Final = ("matchLabels", "matchExpressions")


def only(found: Json, known: Iterable[str], what: str) -> None:
    """Require that an object has no other fields than these.

    Raises:
        NotUnderstoodError: it has.
    """
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise NotUnderstoodError(f"{what}.{unknown[0]}")


def matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects what has these labels; an empty one selects everything.

    Raises:
        NotUnderstoodError: it uses an operator or a field that is not known.
    """
    only(selector, _KEYS, "selector")
    wanted = (selector.get("matchLabels") or {}).items()
    # All of them are looked at: what is not understood must be found whatever the labels are.
    held = [_holds(expression, labels) for expression in selector.get("matchExpressions") or ()]
    return all(labels.get(name) == value for name, value in wanted) and all(held)


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    only(expression, ("key", "operator", "values"), "selector.matchExpressions")
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise NotUnderstoodError(f"selector.matchExpressions.operator {other}")


def sources_of(
    peer: Json, namespace: str, pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Whom a peer of a policy lets in, as matches of nftables; none of them where there is no such pod.

    Args:
        peer: of the policy.
        namespace: of the policy.
        pods: all pods of the cluster.
        namespaces: labels of all namespaces.

    Raises:
        NotUnderstoodError: it cannot be understood.
    """
    only(peer, ("podSelector", "namespaceSelector", "ipBlock"), "from")
    if peer.get("ipBlock") is not None:
        return [_block(peer["ipBlock"])]
    if peer.get("podSelector") is None and peer.get("namespaceSelector") is None:
        raise NotUnderstoodError("from without a selector")
    if peer.get("namespaceSelector") is None:
        chosen = {namespace}
    else:
        chosen = {name for name, labels in namespaces.items() if matches(peer["namespaceSelector"], labels)}
    selector = peer.get("podSelector") or {}
    matches(selector, {})
    selected = [pod for pod in pods if pod.namespace in chosen and matches(selector, pod.labels)]
    return [
        f"{family} saddr {set_of(addresses)}"
        for family in ("ip", "ip6")
        if (addresses := [each for pod in selected for each in pod.addresses if family_of(each) == family])
    ]


def _block(block: Json) -> str:
    only(block, ("cidr", "except"), "from.ipBlock")
    try:
        cidr = ipaddress.ip_network(block["cidr"], strict=False)
        parts = [ipaddress.ip_network(each, strict=False) for each in block.get("except") or ()]
    except ValueError as error:
        raise NotUnderstoodError(f"from.ipBlock: {error}") from error
    if any(part.version != cidr.version for part in parts):
        raise NotUnderstoodError("from.ipBlock.except of another family")
    # nftables refuses a set whose elements overlap.
    without = [
        *map(str, ipaddress.collapse_addresses(each for each in parts if isinstance(each, ipaddress.IPv4Network))),
        *map(str, ipaddress.collapse_addresses(each for each in parts if isinstance(each, ipaddress.IPv6Network))),
    ]
    family = family_of(str(cidr))
    return f"{family} saddr {cidr}{f' {family} saddr != {set_of(without)}' if without else ''}"


def family_of(address: str) -> str:
    """The word by which nftables knows the family of an address or a block."""
    return "ip6" if ":" in address else "ip"


def set_of(elements: Iterable[str]) -> str:
    """A set of nftables, in an order that depends on its elements alone."""
    return f"{{ {', '.join(sorted(set(elements)))} }}"
