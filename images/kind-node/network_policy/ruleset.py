"""The rules of nftables that enforce all policies for the pods of one node. Pure: objects in, text out.

A connection is judged when it begins, where it is forwarded to the bridge of the node's pods. What the node itself
sends, such as the kubelet's probes, is not forwarded and passes, as with other network plugins.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from network_policy.objects import Json, Pod, Policy
from network_policy.selection import NotUnderstoodError, family_of, matches, only, set_of, sources_of

TABLE: Final = "network_policy"
BRIDGE: Final = "pods0"
_FIELDS: Final = ("podSelector", "policyTypes", "ingress", "egress")
_LONGEST_COMMENT: Final = 128
_ANYONE: Final = ""


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The input of `nft -f`, and what of the policies it cannot express: that lets nobody in."""

    text: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """All that policies select from."""

    pods: Sequence[Pod] = ()
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    policies: Sequence[Policy] = ()


def ruleset(node: str, cluster: Cluster) -> Ruleset:
    """The table that replaces the one before it, in one transaction.

    A pod of this node whose address is not known yet is refused all connections, so that none is open between its start
    and its policies.
    """
    problems: set[str] = set()
    chains: list[str] = []
    verdicts: dict[str, list[str]] = {"ip": [], "ip6": []}
    mute: list[str] = []
    shared = _shared_addresses(node, cluster, problems)
    for pod in sorted((each for each in cluster.pods if each.node == node), key=lambda each: each.addresses):
        if shared.intersection(pod.addresses):
            continue
        ingress, egress = _policies_of(pod, cluster.policies, problems)
        verdict = "accept"
        if ingress:
            name = f"pod_{pod.addresses[0].replace('.', '_').replace(':', '_')}"
            verdict = f"jump {name}"
            allowed = [rule for policy in ingress for rule in _allowed(pod, policy, cluster, problems)]
            chains.append(_chain(name, pod, allowed))
        for address in pod.addresses:
            verdicts[family_of(address)].append(f"{address} : {verdict}")
        if egress:
            mute += pod.addresses
    return Ruleset(_table(chains, verdicts, mute), tuple(sorted(problems)))


def _shared_addresses(node: str, cluster: Cluster, problems: set[str]) -> set[str]:
    """Addresses that several pods of the node have, all but one of which are about to go: as if they were not known."""
    times = Counter(address for pod in cluster.pods if pod.node == node for address in pod.addresses)
    shared = {address for address, count in times.items() if count > 1}
    problems.update(f"several pods have the address {address}: it lets nobody in" for address in shared)
    return shared


def _policies_of(pod: Pod, policies: Iterable[Policy], problems: set[str]) -> tuple[list[Policy], bool]:
    """The policies for what comes in to a pod, and whether there is one for what goes out."""
    ingress, egress = [], False
    for policy in policies:
        if policy.namespace != pod.namespace:
            continue
        try:
            only(policy.spec, _FIELDS, "spec")
            selected = matches(policy.spec.get("podSelector") or {}, pod.labels)
        except NotUnderstoodError as error:
            problems.add(_problem(policy, f"{error} is not understood: all pods of the namespace let nobody in"))
            ingress.append(Policy(policy.namespace, policy.name, {}))
            continue
        if not selected:
            continue
        types = policy.spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in policy.spec else [])]
        if "Egress" in types:
            problems.add(_problem(policy, "Egress is not implemented: its pods connect to nobody"))
            egress = True
        if "Ingress" in types:
            ingress.append(policy)
    return ingress, egress


def _allowed(pod: Pod, policy: Policy, cluster: Cluster, problems: set[str]) -> list[str]:
    """Matches of the connections that a policy lets in to a pod."""
    found: list[str] = []
    for rule in policy.spec.get("ingress") or ():
        try:
            only(rule, ("from", "ports"), "ingress")
            sources = _sources(rule.get("from"), policy.namespace, cluster)
            ports = _ports(rule.get("ports"), pod)
        except NotUnderstoodError as error:
            problems.add(_problem(policy, f"{error} is not understood: the rule lets nobody in"))
            continue
        found += [f"{source} {port}".strip() for source, port in product(sources, ports)]
    return found


def _sources(peers: Sequence[Json] | None, namespace: str, cluster: Cluster) -> list[str]:
    if not peers:
        return [_ANYONE]
    namespaces = cluster.namespaces or {}
    return [source for peer in peers for source in sources_of(peer, namespace, cluster.pods, namespaces)]


def _ports(ports: Sequence[Json] | None, pod: Pod) -> list[str]:
    if not ports:
        return [_ANYONE]
    found: list[str] = []
    numbers: dict[str, list[str]] = {}
    for each in ports:
        only(each, ("protocol", "port", "endPort"), "ports")
        protocol, port = each.get("protocol", "TCP"), each.get("port")
        if protocol not in ("TCP", "UDP", "SCTP"):
            raise NotUnderstoodError(f"ports.protocol {protocol}")
        if port is None:
            found.append(f"meta l4proto {protocol.lower()}")
            continue
        # A name that the pod does not have stands for none of its ports.
        number = pod.ports.get((port, protocol)) if isinstance(port, str) else port
        if number is not None:
            # A range of its own: nftables refuses a set whose elements overlap.
            if each.get("endPort") is not None:
                found.append(f"{protocol.lower()} dport {number}-{each['endPort']}")
            else:
                numbers.setdefault(protocol.lower(), []).append(f"{number}")
    return [*found, *(f"{protocol} dport {set_of(some)}" for protocol, some in numbers.items())]


def _chain(name: str, pod: Pod, allowed: Iterable[str]) -> str:
    own = [f"{family_of(address)} saddr {address}" for address in pod.addresses]
    rules = [f"{match} accept".strip() for match in dict.fromkeys((*own, *allowed))]
    comment = f"{pod.namespace}/{pod.name}"[: _LONGEST_COMMENT - 1]
    return _block(f"chain {name}", [*rules, f'counter drop comment "{comment}"'])


def _table(chains: Sequence[str], verdicts: Mapping[str, Sequence[str]], mute: Sequence[str]) -> str:
    silenced = {family: [each for each in mute if family_of(each) == family] for family in verdicts}
    forward = [
        "type filter hook forward priority -1; policy accept;",
        "ct state established,related accept",
        # Without them, pods of one bridge would not find each other.
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept",
        *(f"{family} saddr {set_of(some)} drop" for family, some in silenced.items() if some),
        f'oifname != "{BRIDGE}" accept',
        *(f"{family} daddr vmap {set_of(some)}" for family, some in verdicts.items() if some),
        "reject",
    ]
    body = "\n".join([*chains, _block("chain forward", forward)])
    # Added first, so that there is one to delete.
    return f"add table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{body}\n}}\n"


def _block(head: str, lines: Iterable[str]) -> str:
    return "\n".join([f"  {head} {{", *(f"    {line}" for line in lines), "  }"])


def _problem(policy: Policy, what: str) -> str:
    return f"NetworkPolicy {policy.namespace}/{policy.name}: {what}"
