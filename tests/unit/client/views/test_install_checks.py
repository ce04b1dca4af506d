"""What `ddpjob doctor --install` says, before and after an installation."""

import copy
from typing import Any

import pytest
from api_answers import DENIED, GONE, named

from ddpjob.cluster.installation import OF_JOBS, OF_LEASES, OF_NETWORK_POLICIES
from ddpjob.views.checks import Check, Outcome, Right
from ddpjob.views.definition_checks import check_definition
from ddpjob.views.install_checks import (
    check_installed,
    check_installer,
    check_leads,
    check_policy,
    check_priority,
    check_release,
)
from ddpjob.views.operator_checks import makes_network_policies
from ddpjob.views.place_checks import (
    check_gpus,
    check_monitoring,
    check_namespaces,
    check_pod_security,
    check_storage,
)
from ddpjob_core.api.crd import custom_resource_definition
from ddpjob_core.api.release import ANNOTATION_RELEASE, RELEASE
from ddpjob_core.api.scope import Scope
from hack.generate.permissions import granted, rules_for_network_policies

OK, FAIL, SKIP, WARN, MISSING = Outcome.OK, Outcome.FAIL, Outcome.SKIP, Outcome.WARN, Outcome.MISSING
ALL, TEAM = Scope(), Scope.of("team")
ACCEPTED = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]


def definition(**conditions: Any) -> Any:
    made = copy.deepcopy(custom_resource_definition())
    return {**made, "status": {"conditions": conditions.get("conditions", ACCEPTED)}}


def spec_of(made: Any) -> Any:
    return made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def older() -> Any:
    made = definition()
    for field in ("elastic", "restart", "checkpoint", "rendezvous", "launcher"):
        del spec_of(made)[field]
    return made


def newer() -> Any:
    made = definition()
    spec_of(made)["checkpoint"]["properties"]["compression"] = {"type": "object", "properties": {"level": {}}}
    return made


def looser() -> Any:
    made = definition()
    spec_of(made)["nodes"]["maximum"] = 7
    spec_of(made)["nodes"]["description"] = "in other words"
    return made


def both() -> Any:
    made = newer()
    del spec_of(made)["elastic"]
    return made


def operator(*arguments: str, ready: int = 1, name: str = "op", priority: str = "") -> Any:
    pod: Any = {"containers": [{"name": "operator", "args": list(arguments)}]}
    if priority:
        pod["priorityClassName"] = priority
    return named(name, spec={"template": {"spec": pod}}, status={"readyReplicas": ready} if ready else {})


def lease(scope: Scope, holder: str = "op-1_x", release: str | None = RELEASE) -> Any:
    made = named(scope.lease, spec={"holderIdentity": holder, "leaseTransitions": 3})
    made["metadata"]["annotations"] = {**scope.annotations, **({ANNOTATION_RELEASE: release} if release else {})}
    return made


def place(name: str, level: str = "") -> Any:
    return {"metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": level} if level else {}}}


def binding(*actions: str, policy: str = "ddpjob-pods") -> Any:
    return named("b", spec={"policyName": policy, "validationActions": list(actions)})


def storage(name: str, default: str = "") -> Any:
    made = named(name, provisioner="disks")
    made["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": default}
    return made


EVERYWHERE, SHARD = operator(), operator("--namespace=team", name="shard")
HELD, RENEWED = lease(ALL), {ALL.lease: True}
SYSTEM, HOME = place("ddpjob-system", "restricted"), place("team")
GPUS = {"cpu": "8", "nvidia.com/gpu": "4", "nvidia.com/gpu.shared": "0"}
NODES = [named("a", status={"allocatable": GPUS}), named("b", status={"allocatable": GPUS}), named("c", status={})]
MONITORS = {"resources": [{"name": "podmonitors"}, {"name": "prometheusrules"}, {"name": "alertmanagers"}]}
LACK = [Right("create clusterroles", allowed=False), Right("patch clusterroles", allowed=True)]

DEFINITION = [
    (check_definition(definition(), {}, required=True), OK, "is this program's, field by field"),
    (check_definition(GONE, GONE, required=False), MISSING, "no definition of ddpjobs.ddpjob.dev"),
    (check_definition(GONE, GONE, required=True), FAIL, "no definition of ddpjobs.ddpjob.dev"),
    (check_definition(DENIED, {}, required=True), WARN, "ddpjob.dev/v1alpha1 is served; you may not"),
    (check_definition(DENIED, GONE, required=False), MISSING, "no definition"),
    (check_definition(DENIED, DENIED, required=False), FAIL, "you may not"),
    (check_definition(older(), {}, required=True), FAIL, "older than this program: it lacks "),
    (check_definition(newer(), {}, required=True), WARN, "does not know spec.checkpoint.compression"),
    (check_definition(both(), {}, required=True), FAIL, "it lacks spec.elastic"),
    (check_definition(looser(), {}, required=True), FAIL, "other rules than this program's: spec.nodes"),
    (check_definition(definition(conditions=[]), {}, required=True), FAIL, "it is not NamesAccepted yet"),
]
INSTALLER = [
    (check_installer([Right("create crds", allowed=True)], installed=False), OK, "you may install"),
    (check_installer([Right("create crds", allowed=True)], installed=True), OK, "you may upgrade"),
    (check_installer(LACK, installed=False), FAIL, "to install, you lack: create clusterroles"),
    (check_installer(LACK, installed=True), WARN, "to upgrade, you lack: create clusterroles"),
    (check_installer(LACK * 9, installed=False), FAIL, "create clusterroles and 1 more"),
    (check_installer(DENIED, installed=False), SKIP, "you may not"),
]
OPERATORS = [
    (check_installed([], [], ALL), MISSING, "no operator of all namespaces is installed"),
    (check_installed([], [], TEAM), MISSING, "no operator of namespace team is installed"),
    (check_installed([EVERYWHERE], [], ALL), OK, "ns/op is ready"),
    (check_installed([EVERYWHERE], [], TEAM), OK, "ns/op is ready"),
    (check_installed([SHARD], [], TEAM), OK, "ns/shard (namespace team) is ready"),
    (check_installed([SHARD], [], ALL), FAIL, "ns/shard serves namespace team: an operator of all namespaces would"),
    (check_installed([operator("--namespace=team,b")], [], TEAM), OK, "is ready"),
    (check_installed([operator("--namespace=other", ready=0), SHARD], [], TEAM), OK, "ns/shard"),
    (check_installed([EVERYWHERE, SHARD], [], TEAM), FAIL, "ns/op and ns/shard both serve namespace team"),
    (check_installed([operator(ready=0)], [], ALL), FAIL, "has no ready pod"),
    (check_installed([operator("--namespace=$(MINE)")], [], TEAM), OK, "namespaces unknown"),
    (check_installed(DENIED, [], ALL), FAIL, "you may not"),
]
LEADERS = [
    (check_leads([HELD], RENEWED, [EVERYWHERE], ALL), OK, "op-1 (term 3) renews its Lease"),
    (check_leads([HELD], RENEWED, [EVERYWHERE], TEAM), OK, "op-1 (term 3) renews its Lease"),
    (check_leads([HELD], {ALL.lease: False}, [EVERYWHERE], ALL), FAIL, "is not renewed: op-1 (term 3) does not lead"),
    (check_leads([HELD], {}, [EVERYWHERE], ALL), FAIL, "is not renewed"),
    (check_leads([HELD], {ALL.lease: DENIED}, [EVERYWHERE], ALL), FAIL, "you may not"),
    (check_leads([HELD], {ALL.lease: False}, [], ALL), SKIP, "no operator of all namespaces is installed"),
    (check_leads([HELD], RENEWED, [], ALL), FAIL, "leads, and belongs to no Deployment"),
    (check_leads([HELD], RENEWED, [], TEAM), FAIL, "leads, and belongs to no Deployment"),
    (check_leads([HELD], RENEWED, DENIED, ALL), SKIP, "no operator"),
    (check_leads([lease(ALL, holder="")], {}, [EVERYWHERE], ALL), FAIL, "the Lease for all namespaces: no job is"),
    (check_leads([lease(TEAM)], {TEAM.lease: True}, [SHARD], ALL), SKIP, "no operator of all namespaces"),
    (check_leads([lease(TEAM)], {TEAM.lease: True}, [SHARD], TEAM), OK, "op-1 (term 3, namespace team) renews"),
    (check_leads([], {}, [SHARD], TEAM), FAIL, "no operator holds the Lease for namespace team"),
    (check_leads(DENIED, {}, [SHARD], TEAM), FAIL, "you may not"),
]
RELEASES = [
    (check_release([HELD], ALL), OK, f"operator and program are {RELEASE}"),
    (check_release([lease(ALL, release="99.0.0")], ALL), WARN, f"is 99.0.0; this program is {RELEASE}"),
    (check_release([lease(ALL, release="0.0.1")], ALL), WARN, "is 0.0.1; this program"),
    (check_release([lease(ALL, release=None)], ALL), WARN, "does not say its version, and so is an older one"),
    (check_release([lease(Scope.of("other"), release="9")], TEAM), SKIP, "no operator leads"),
    (check_release([], ALL), SKIP, "no operator leads"),
    (check_release(DENIED, ALL), SKIP, "you may not"),
]
POLICIES = [
    (check_policy(GONE, [], required=False), MISSING, "there is no policy ddpjob-pods"),
    (check_policy(GONE, [], required=True), WARN, "anyone who may create DDPJobs can have any pod"),
    (check_policy({}, [binding("Deny")], required=True), OK, "ddpjob-pods decides"),
    (check_policy({}, [binding("Deny", policy="others")], required=True), WARN, "has no binding"),
    (check_policy({}, [binding("Warn", "Audit")], required=True), WARN, "refuses nothing"),
    (check_policy(DENIED, [], required=True), SKIP, "you may not"),
    (check_policy({}, DENIED, required=True), SKIP, "you may not"),
]
CLASSES = [
    (check_priority([named("ddpjob-critical")], [], ALL), OK, "ddpjob-critical"),
    (check_priority([], [], ALL), MISSING, "no priority class ddpjob-critical"),
    (check_priority([], [], TEAM), FAIL, "no priority class ddpjob-critical"),
    (check_priority([], [EVERYWHERE], ALL), OK, "the operator's pods name none"),
    (check_priority([], [operator(priority="high")], ALL), FAIL, "no priority class high"),
    (check_priority([named("high")], [operator(priority="high"), EVERYWHERE], ALL), OK, "high"),
    (check_priority(DENIED, [], ALL), SKIP, "you may not"),
]
PLACES = [
    (check_namespaces([SYSTEM, HOME], ALL, installed=True), OK, "ddpjob-system"),
    (check_namespaces([SYSTEM, HOME], TEAM, installed=False), OK, "ddpjob-system, team"),
    (check_namespaces([HOME], ALL, installed=False), MISSING, "no namespace ddpjob-system"),
    (check_namespaces([HOME], ALL, installed=True), FAIL, "no namespace ddpjob-system"),
    (check_namespaces([HOME], TEAM, installed=False), FAIL, "no namespace ddpjob-system"),
    (check_namespaces([SYSTEM], TEAM, installed=False), FAIL, "no namespace team"),
    (check_namespaces(DENIED, ALL, installed=False), SKIP, "you may not"),
    (check_pod_security([SYSTEM, HOME], ALL), OK, "no namespace with jobs enforces restricted"),
    (check_pod_security([SYSTEM, place("kube-system", "restricted")], ALL), OK, "no namespace with jobs"),
    (check_pod_security([SYSTEM, place("team", "restricted"), place("b", "baseline")], ALL), OK, "team enforces"),
    (check_pod_security([SYSTEM, place("team", "restricted")], TEAM), OK, "team enforces restricted"),
    (check_pod_security([SYSTEM, HOME], TEAM), OK, "none of namespace team enforces restricted"),
    (check_pod_security(DENIED, ALL), SKIP, "you may not"),
    (check_storage([storage("fast", "true"), storage("slow")]), OK, "fast (disks) is the default"),
    (check_storage([storage("slow", "false")]), WARN, "of slow none is the default"),
    (check_storage([]), WARN, "there is none, so none is the default"),
    (check_storage(DENIED), SKIP, "you may not"),
    (check_gpus(NODES), OK, "8 nvidia.com/gpu on 2 nodes"),
    (check_gpus(NODES[2:]), OK, "none of 1 node advertises any"),
    (check_gpus(DENIED), SKIP, "you may not"),
    (check_monitoring(MONITORS), OK, "are served"),
    (check_monitoring({"resources": [{"name": "podmonitors"}]}), FAIL, "does not serve prometheusrules"),
    (check_monitoring(GONE), FAIL, "does not serve podmonitors and prometheusrules"),
    (check_monitoring(DENIED), SKIP, "you may not"),
]


@pytest.mark.parametrize(
    ("check", "outcome", "text"),
    [*DEFINITION, *INSTALLER, *OPERATORS, *LEADERS, *RELEASES, *POLICIES, *CLASSES, *PLACES],
)
def test_a_part_of_an_installation_is_there_lacking_or_in_doubt(check: Check, outcome: Outcome, text: str) -> None:
    assert (check.outcome, text in check.message) == (outcome, True), check
    assert check.remedy or check.outcome in (OK, SKIP) or check.message == "you may not"


def test_of_many_fields_that_differ_the_outermost_are_named_and_the_rest_counted() -> None:
    check = check_definition(older(), {}, required=True)
    assert check.message.endswith(" and 2 more")
    assert check.message.count("spec.") == 3
    nested = check_definition(newer(), {}, required=True)
    assert "compression.level" not in nested.message


def test_an_older_operator_and_an_older_program_are_each_upgraded() -> None:
    assert "upgrade the operator" in check_release([lease(ALL, release="0.0.1")], ALL).remedy
    assert "pip install" in check_release([lease(ALL, release="0.10.0")], ALL).remedy


def test_what_the_operator_is_granted_is_what_the_manifests_grant() -> None:
    ours = {
        (".".join(filter(None, (resource.plural, resource.group))) + (f"/{sub}" if sub else ""), verb)
        for resource, sub, verbs in (*OF_JOBS, *OF_LEASES)
        for verb in verbs
    }
    assert ours == set(granted())
    networks = {(f"networkpolicies.{each.group}", verb) for each, _, verbs in OF_NETWORK_POLICIES for verb in verbs}
    wanted = {
        (f"{name}.{group}", verb)
        for rule in rules_for_network_policies()
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }
    assert networks == wanted


@pytest.mark.parametrize(
    ("arguments", "isolates"),
    [({}, False), ({"args": ["--network-policies"]}, True), ({"args": ["--network-policies=no"]}, False)],
)
def test_whether_an_operator_makes_network_policies_is_seen_from_its_arguments(
    arguments: Any, *, isolates: bool
) -> None:
    deployed = {"spec": {"template": {"spec": {"containers": [arguments]}}}}
    assert makes_network_policies(deployed) is isolates
