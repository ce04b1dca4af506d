"""The rules that enforce policies on the nodes of the kind cluster that are built here."""

from typing import Any

import pytest

from network_policy.objects import Json, Pod, Policy, pod_of, policy_of
from network_policy.ruleset import Cluster, Ruleset, ruleset

NAMESPACES = {
    "team": {"kubernetes.io/metadata.name": "team", "kind": "tenant"},
    "other": {"kubernetes.io/metadata.name": "other", "kind": "tenant"},
    "monitoring": {"kubernetes.io/metadata.name": "monitoring"},
}
SELF = ["ip saddr 10.0.0.1 accept", "ip6 saddr fd00::1 accept"]


def pod(name: str, address: str, namespace: str = "team", node: str = "far", **labels: str) -> Pod:
    return Pod(namespace, name, node, labels, (address,))


VICTIM = Pod("team", "victim", "here", {"job": "a"}, ("10.0.0.1", "fd00::1"), {("http", "TCP"): 8080})
PODS = (
    VICTIM,
    pod("open", "10.0.0.9", node="here"),
    pod("friend", "10.0.1.2", job="a"),
    pod("neighbour", "10.0.1.3"),
    pod("stranger", "10.0.1.4", "other", job="a"),
    pod("reader", "10.0.1.5", "monitoring"),
)


def rules_of(*policies: Json, pods: tuple[Pod, ...] = PODS) -> Ruleset:
    return ruleset(
        "here", Cluster(pods, NAMESPACES, [Policy("team", f"p{at}", spec) for at, spec in enumerate(policies)])
    )


def chain_of(found: Ruleset, name: str = "pod_10_0_0_1") -> list[str] | None:
    """The rules of a chain without its end; None where there is no such chain."""
    lines = [line.strip() for line in found.text.splitlines()]
    if f"chain {name} {{" not in lines:
        return None
    start = lines.index(f"chain {name} {{") + 1
    return lines[start : lines.index("}", start)]


def forward_of(found: Ruleset) -> list[str]:
    rules = chain_of(found, "forward")
    assert rules is not None
    return rules


def ingress(*rules: Json, selects: Json | None = None) -> Json:
    return {"podSelector": selects or {"matchLabels": {"job": "a"}}, "policyTypes": ["Ingress"], "ingress": list(rules)}


def test_without_policies_known_pods_are_open_and_unknown_addresses_are_refused() -> None:
    found = rules_of()
    assert found.problems == ()
    assert forward_of(found) == [
        "type filter hook forward priority -1; policy accept;",
        "ct state established,related accept",
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept",
        'oifname != "pods0" accept',
        "ip daddr vmap { 10.0.0.1 : accept, 10.0.0.9 : accept }",
        "ip6 daddr vmap { fd00::1 : accept }",
        "reject",
    ]


def test_before_anything_is_known_all_pods_of_the_node_are_refused() -> None:
    assert forward_of(ruleset("here", Cluster()))[-2:] == ['oifname != "pods0" accept', "reject"]


def test_a_policy_closes_the_pods_that_it_selects_and_no_others() -> None:
    found = rules_of(ingress())
    assert chain_of(found) == [*SELF, 'counter drop comment "team/victim"']
    assert "ip daddr vmap { 10.0.0.1 : jump pod_10_0_0_1, 10.0.0.9 : accept }" in forward_of(found)
    assert "ip6 daddr vmap { fd00::1 : jump pod_10_0_0_1 }" in forward_of(found)


TCP = {"protocol": "TCP"}
RULES: list[tuple[Json, list[str]]] = [
    ({}, ["accept"]),
    ({"from": []}, ["accept"]),
    (
        {"from": [{"podSelector": {}}]},
        ["ip saddr { 10.0.0.1, 10.0.0.9, 10.0.1.2, 10.0.1.3 } accept", "ip6 saddr { fd00::1 } accept"],
    ),
    (
        {"from": [{"podSelector": {"matchLabels": {"job": "a"}}}]},
        ["ip saddr { 10.0.0.1, 10.0.1.2 } accept", "ip6 saddr { fd00::1 } accept"],
    ),
    ({"from": [{"podSelector": {"matchLabels": {"job": "none"}}}]}, []),
    (
        {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]},
        ["ip saddr { 10.0.1.5 } accept"],
    ),
    (
        {
            "from": [
                {"namespaceSelector": {"matchLabels": {"kind": "tenant"}}, "podSelector": {"matchLabels": {"job": "a"}}}
            ]
        },
        ["ip saddr { 10.0.0.1, 10.0.1.2, 10.0.1.4 } accept", "ip6 saddr { fd00::1 } accept"],
    ),
    ({"from": [{"namespaceSelector": {"matchLabels": {"kind": "none"}}}]}, []),
    (
        {"from": [{"namespaceSelector": {"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]}}]},
        ["ip saddr { 10.0.1.5 } accept"],
    ),
    (
        {"from": [{"podSelector": {"matchExpressions": [{"key": "job", "operator": "NotIn", "values": ["a"]}]}}]},
        ["ip saddr { 10.0.0.9, 10.0.1.3 } accept"],
    ),
    ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, ["ip saddr 10.0.0.0/8 accept"]),
    (
        {"from": [{"ipBlock": {"cidr": "fd00::/8", "except": ["fd01::/16", "fd00:1::/32"]}}]},
        ["ip6 saddr fd00::/8 ip6 saddr != { fd00:1::/32, fd01::/16 } accept"],
    ),
    ({"ports": [{**TCP, "port": 80}]}, ["tcp dport { 80 } accept"]),
    # nftables refuses sets whose elements overlap, and with them all rules.
    (
        {"ports": [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 85}, {"port": 85}]},
        ["tcp dport 80-90 accept", "tcp dport 85-85 accept", "tcp dport { 85 } accept"],
    ),
    (
        {"from": [{"ipBlock": {"cidr": "10.1.2.3/8", "except": ["10.0.0.0/9", "10.1.0.0/16", "10.1.2.3/16"]}}]},
        ["ip saddr 10.0.0.0/8 ip saddr != { 10.0.0.0/9 } accept"],
    ),
    (
        {"ports": [{"port": 80}, {**TCP, "port": 90, "endPort": 99}]},
        ["tcp dport 90-99 accept", "tcp dport { 80 } accept"],
    ),
    (
        {"ports": [{"protocol": "UDP", "port": 53}, {**TCP, "port": "http"}]},
        ["udp dport { 53 } accept", "tcp dport { 8080 } accept"],
    ),
    ({"ports": [{**TCP, "port": "unknown"}]}, []),
    ({"ports": [{"protocol": "UDP", "port": "http"}]}, []),
    ({"ports": [{"protocol": "SCTP"}]}, ["meta l4proto sctp accept"]),
    (
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{**TCP, "port": 1}, {"protocol": "UDP", "port": 2}]},
        ["ip saddr 10.0.0.0/8 tcp dport { 1 } accept", "ip saddr 10.0.0.0/8 udp dport { 2 } accept"],
    ),
]


@pytest.mark.parametrize(("rule", "accepted"), RULES)
def test_a_rule_lets_in_whom_it_names_on_the_ports_that_it_names(rule: Json, accepted: list[str]) -> None:
    found = rules_of(ingress(rule))
    assert found.problems == ()
    assert chain_of(found) == [*SELF, *accepted, 'counter drop comment "team/victim"']


def test_policies_add_up() -> None:
    found = rules_of(
        ingress({"ports": [{"port": 1}]}), ingress({"ports": [{"port": 2}]}), ingress({"ports": [{"port": 1}]})
    )
    assert chain_of(found) == [
        *SELF,
        "tcp dport { 1 } accept",
        "tcp dport { 2 } accept",
        'counter drop comment "team/victim"',
    ]


def test_a_policy_of_another_namespace_selects_nothing_here() -> None:
    cluster = Cluster(PODS, NAMESPACES, [Policy("other", "p", ingress(selects={}))])
    assert chain_of(ruleset("here", cluster)) is None


STRANGE: list[Json] = [
    {"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}]},
    {"from": [{"podSelector": {"matchFields": {}}}]},
    {"from": [{"nodeSelector": {}}]},
    {"from": [{}]},
    {"from": [{"ipBlock": {"cidr": "everything"}}]},
    {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8; }"]}}]},
    {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/8"]}}]},
    {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/8", "10.1.0.0/16"]}}]},
    {"ports": [{"protocol": "ICMP"}]},
    {"ports": [{"port": 80, "sourcePort": 1}]},
    {"when": "later"},
]


@pytest.mark.parametrize("rule", STRANGE)
def test_what_is_not_understood_lets_nobody_in_and_is_said(rule: Json) -> None:
    found = rules_of(ingress({"from": [{"podSelector": {}}], "ports": [{"port": 1}]}, rule))
    chain = chain_of(found)
    assert chain is not None
    assert chain[len(SELF) :] == [
        "ip saddr { 10.0.0.1, 10.0.0.9, 10.0.1.2, 10.0.1.3 } tcp dport { 1 } accept",
        "ip6 saddr { fd00::1 } tcp dport { 1 } accept",
        'counter drop comment "team/victim"',
    ]
    (problem,) = found.problems
    assert problem.startswith("NetworkPolicy team/p0: ")
    assert problem.endswith("is not understood: the rule lets nobody in")


@pytest.mark.parametrize(
    "change",
    [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, {"podSelector": {"new": {}}}, {"new": 1}],
)
def test_a_policy_of_which_it_is_not_known_whom_it_selects_closes_all_pods_of_its_namespace(change: Json) -> None:
    found = rules_of({**ingress({}), **change})
    for name, own in (("pod_10_0_0_1", SELF), ("pod_10_0_0_9", ["ip saddr 10.0.0.9 accept"])):
        chain = chain_of(found, name)
        assert chain is not None
        assert chain[:-1] == own
    assert "all pods of the namespace let nobody in" in found.problems[0]


@pytest.mark.parametrize(
    "spec", [{"policyTypes": ["Egress"]}, {"egress": [{}]}, {"policyTypes": ["Ingress", "Egress"]}]
)
def test_pods_with_rules_for_what_goes_out_connect_to_nobody_and_that_is_said(spec: Json) -> None:
    found = rules_of({"podSelector": {"matchLabels": {"job": "a"}}, **spec})
    assert "ip saddr { 10.0.0.1 } drop" in forward_of(found)
    assert "ip6 saddr { fd00::1 } drop" in forward_of(found)
    assert (chain_of(found) is None) is (spec == {"policyTypes": ["Egress"]})
    assert found.problems == ("NetworkPolicy team/p0: Egress is not implemented: its pods connect to nobody",)


def test_an_address_that_two_pods_of_the_node_have_lets_nobody_in_and_the_other_rules_hold() -> None:
    late = Pod("other", "late", "here", {}, ("10.0.0.1",))
    found = rules_of(ingress({}), pods=(*PODS, late))
    assert chain_of(found) is None
    assert "ip daddr vmap { 10.0.0.9 : accept }" in forward_of(found)
    assert forward_of(found)[-1] == "reject"
    assert found.problems == ("several pods have the address 10.0.0.1: it lets nobody in",)


def raw_pod(phase: str = "Running", **spec: Any) -> Json:
    container = {"name": "c", "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 1}]}
    return {
        "metadata": {"namespace": "team", "name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "here", "containers": [container], **spec},
        "status": {"phase": phase, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    }


def test_a_pod_is_known_by_all_its_addresses_and_its_named_ports() -> None:
    addresses = ("10.0.0.1", "fd00::1")
    assert pod_of(raw_pod()) == Pod("team", "p", "here", {"a": "b"}, addresses, {("http", "TCP"): 80})


@pytest.mark.parametrize(
    "raw",
    [
        raw_pod("Succeeded"),
        raw_pod("Failed"),
        raw_pod(hostNetwork=True),
        raw_pod(nodeName=None),
        {**raw_pod(), "status": {"phase": "Pending"}},
        {**raw_pod(), "status": {}},
    ],
)
def test_a_pod_that_has_ended_or_has_no_address_of_its_own_counts_for_nothing(raw: Json) -> None:
    assert pod_of(raw) is None


def test_a_policy_without_a_spec_closes_the_pods_of_its_namespace() -> None:
    policy = policy_of({"metadata": {"namespace": "team", "name": "p"}})
    assert chain_of(ruleset("here", Cluster(PODS, NAMESPACES, [policy]))) is not None
