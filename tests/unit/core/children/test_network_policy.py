"""The NetworkPolicy of a job: whom it lets in, when it is created, and what is said where it protects nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from world import World, running_world, spec_of, words

from ddpjob_core.api import ConditionType
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.network_policy import Isolation, IsolationError, content_of
from ddpjob_core.children.actions import Create
from ddpjob_core.children.network_policy import build_network_policy
from ddpjob_core.observations.observed import JobRecord, Rejection, RejectionKind

ISOLATION = Isolation(("ddpjob-system", "monitoring"))
HOST: dict[str, Any] = {"spec": {"hostNetwork": True}}
OWN = {"podSelector": {"matchLabels": {"ddpjob.dev/uid": "uid-digits"}}}
READERS = [
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    for name in ISOLATION.metrics_namespaces
]


def policy_of(**fields: Any) -> dict[str, Any]:
    spec = spec_of(**fields)
    return build_network_policy(
        JobRecord("ml", "digits", "uid-digits", "1", 1, deleting=False, spec=spec), spec, ISOLATION
    )


def tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def trainer(**fields: Any) -> dict[str, Any]:
    return {"trainer": {"image": "i", "script": "train.py", **fields}}


@pytest.mark.parametrize(
    ("fields", "metrics", "declared"),
    [
        ({}, tcp(9401), None),
        ({"procsPerNode": 3}, tcp(9401, 9402, 9403), None),
        ({"metrics": {"port": 9000}}, tcp(9000), None),
        ({"elastic": {"maxNodes": 5}}, tcp(9401), None),
        ({"launcher": "mpirun"}, tcp(9401), None),
        (trainer(ports=[{"containerPort": 6006}, {"containerPort": 53, "protocol": "UDP"}]), tcp(9401), "own"),
        # The store stays closed, and mpirun's sshd, whatever is declared.
        (trainer(ports=[{"containerPort": 29500}]), tcp(9401), None),
        (
            {"rendezvous": {"port": 1234}, **trainer(ports=[{"containerPort": 1234}, {"containerPort": 29500}])},
            tcp(9401),
            "former",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "trainer", "ports": [{"containerPort": 6006}]}]}}},
            tcp(9401),
            "s",
        ),
        # What other containers declare is opened by naming it in spec.trainer.ports alone.
        (
            {
                "template": {
                    "spec": {
                        "containers": [{"name": "board", "ports": [{"containerPort": 6006}]}],
                        "initContainers": [
                            {"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 6006}]}
                        ],
                    }
                }
            },
            tcp(9401),
            None,
        ),
        # What the API server refuses in the pod.
        (
            {"template": {"spec": {"containers": [{"name": "trainer", "ports": [{"containerPort": "http"}, {}]}]}}},
            tcp(9401),
            None,
        ),
    ],
)
def test_only_its_own_pods_reach_all_ports_and_others_what_is_meant_for_them(
    fields: dict[str, Any], metrics: list[dict[str, Any]], declared: str | None
) -> None:
    ports = {
        "own": [{"port": 53, "protocol": "UDP"}, *tcp(6006)],
        "former": tcp(29500),
        "s": tcp(6006),
    }
    spec = policy_of(**fields)["spec"]
    assert spec["podSelector"] == OWN["podSelector"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [
        {"from": [OWN]},
        {"from": READERS, "ports": metrics},
        *([{"from": [{"podSelector": {}}], "ports": ports[declared]}] if declared else []),
    ]


def test_it_belongs_to_the_job_and_has_its_name() -> None:
    metadata = policy_of()["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("ml", "digits")
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["uid-digits"]


@pytest.mark.parametrize(
    ("given", "namespaces"),
    [
        ([], ("ddpjob-system",)),
        (["monitoring,a", "b"], ("a", "b", "ddpjob-system", "monitoring")),
        (["ddpjob-system", "a,a"], ("a", "ddpjob-system")),
    ],
)
def test_the_operators_own_namespace_always_reads_metrics(given: list[str], namespaces: tuple[str, ...]) -> None:
    assert Isolation.of("ddpjob-system", given).metrics_namespaces == namespaces


@pytest.mark.parametrize("given", ["", "a,", "Team", "a b", "*", "x" * 64, "a\n"])
def test_what_is_not_a_namespaces_name_is_refused(given: str) -> None:
    with pytest.raises(IsolationError, match="is not a namespace's name"):
        Isolation.of("ddpjob-system", [given])


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"egress": []}, True),
        ({"podSelector": {}}, False),
        ({"podSelector": {"matchLabels": {"ddpjob.dev/uid": "uid-digits", "never": "there"}}}, False),
        ({"policyTypes": ["Ingress", "Egress"]}, False),
        ({"ingress": [{}]}, False),
        ({"ingress": None}, False),
    ],
)
def test_the_content_tells_every_other_meaning_apart(change: dict[str, Any], *, same: bool) -> None:
    spec = policy_of()["spec"]
    assert (content_of({**spec, **change}) == content_of(spec)) is same


@pytest.mark.parametrize("spec", [None, [], "", 1])
def test_what_cannot_be_a_policy_says_nothing(spec: object) -> None:
    assert content_of(spec) == ""


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun", "python"])
def test_it_is_created_before_the_pods_and_nothing_more_happens(launcher: str) -> None:
    world = World(spec=spec_of(launcher=launcher), isolation=ISOLATION)
    plan = world.reconcile()
    assert plan.status is None
    made = words(plan.actions)
    assert made.count("Create NetworkPolicy") == 1
    assert made.index("Create NetworkPolicy") < made.index("Create Pod")
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    assert words(world.requests).count("Create NetworkPolicy") == 1


def test_without_the_operators_flag_there_is_none() -> None:
    world = running_world()
    assert "Create NetworkPolicy" not in words(world.requests)


def isolated_world(**fields: object) -> World:
    world = World(spec=spec_of(**fields), isolation=ISOLATION)
    world.settle()
    world.run_all()
    world.advance(6)
    world.settle()
    return world


def test_one_that_is_deleted_or_says_something_else_while_the_pods_run_is_put_right_at_once() -> None:
    world = isolated_world()
    for broken in (None, replace(world.network_policy, content="another") if world.network_policy else None):
        world.network_policy = broken
        assert words(world.reconcile().actions) == ["Create NetworkPolicy"]
        assert world.reconcile().actions == ()


def test_running_jobs_get_one_when_the_operator_is_given_the_flag_or_other_namespaces() -> None:
    world = running_world()
    world.isolation = ISOLATION
    assert words(world.reconcile().actions) == ["Create NetworkPolicy"]
    world.isolation = Isolation(("ddpjob-system",))
    assert words(world.reconcile().actions) == ["Create NetworkPolicy"]
    assert world.reconcile().actions == ()


def test_a_foreign_one_of_its_name_is_waited_for_and_named_and_no_pod_starts_unprotected() -> None:
    world = World(spec=spec_of(), isolation=ISOLATION)
    world.foreign = {ObjectName("NetworkPolicy", "digits"): "DDPJob digits (uid older)"}
    plan = world.reconcile()
    assert plan.actions == ()
    assert plan.status is not None
    waits = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert waits is not None
    assert waits.reason == "NameTaken"
    assert waits.message == (
        "networkpolicy digits: it exists already and belongs to DDPJob digits (uid older); waiting until it is deleted"
    )
    world.foreign = {}
    world.settle()
    assert world.creations == ["digits-a0-0", "digits-a0-1"]


@pytest.mark.parametrize("kind", [RejectionKind.FORBIDDEN, RejectionKind.ALTERED, RejectionKind.NAME_TAKEN])
def test_one_that_is_refused_is_named_and_tried_again_and_no_pod_starts_unprotected(kind: RejectionKind) -> None:
    world = World(spec=spec_of(), isolation=ISOLATION)
    world.rejections = (Rejection(kind, ObjectName("NetworkPolicy", "digits"), "no"),)
    plan = world.reconcile()
    assert words(plan.actions) == ["Create NetworkPolicy"]
    assert plan.requeue_after == timedelta(seconds=10)
    assert plan.status is not None
    condition = plan.status.condition(ConditionType.PODS_SCHEDULED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", kind.value)


def test_a_refusal_is_asked_about_again_although_the_policy_is_there() -> None:
    world = isolated_world()
    world.rejections = (Rejection(RejectionKind.UNAVAILABLE, ObjectName("NetworkPolicy", "digits"), "busy"),)
    assert [action.manifest["kind"] for action in world.reconcile().actions if isinstance(action, Create)] == [
        "NetworkPolicy"
    ]


@pytest.mark.parametrize("flag", [True, False])
def test_a_job_on_the_host_network_has_none_and_says_that_it_is_unprotected(*, flag: bool) -> None:
    world = World(spec=spec_of(template=HOST), isolation=ISOLATION if flag else None)
    world.foreign = {ObjectName("NetworkPolicy", "digits"): "an unknown owner"}
    world.settle()
    for name in list(world.pods):
        world.assign(name)
    world.run_all()
    world.advance(6)
    world.settle()
    assert "Create NetworkPolicy" not in words(world.requests)
    assert world.status is not None
    condition = world.status.condition(ConditionType.PODS_SCHEDULED)
    assert condition is not None
    said = "2 of 2 pods have a node" + (
        "; on the network of their nodes, no NetworkPolicy protects them" if flag else ""
    )
    assert condition.message == said
