"""What `ddpjob doctor` says about an installation."""

import json
from typing import Any

import pytest
from api_answers import DENIED, DOWN, EMPTY_SLICE, GONE, SLICE, named

from ddpjob.views.checks import (
    Check,
    Outcome,
    Right,
    check_api,
    check_crd,
    check_dns,
    check_health,
    check_leader,
    check_lines,
    check_nodes,
    check_operator,
    check_quota,
    check_rights,
)
from ddpjob_core.api.crd import custom_resource_definition
from ddpjob_core.api.errors import (
    Unavailable,
)

OK, FAIL, SKIP = Outcome.OK, Outcome.FAIL, Outcome.SKIP


def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return named(name, spec=spec, status={"conditions": [{"type": "Ready", "status": ready}]})


def operator(ready: int, replicas: int = 1) -> dict[str, Any]:
    return named("ddpjob-operator", spec={"replicas": replicas}, status={"readyReplicas": ready} if ready else {})


def lease(holder: str, term: int) -> dict[str, Any]:
    return named("ddpjob-operator", spec={"holderIdentity": holder, "leaseTransitions": term})


def older_crd() -> dict[str, Any]:
    definition = json.loads(json.dumps(custom_resource_definition()))
    version = definition["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["restart"]
    return dict(definition)


STUCK_POD = named(
    "op-1", status={"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]}
)
QUOTA = named("q", status={"hard": {"pods": "2", "requests.cpu": "4"}, "used": {"pods": "2", "requests.cpu": "500m"}})
ROOMY = named("q", status={"hard": {"pods": "2", "memory": "1Gi"}, "used": {"pods": "1", "memory": "1Mi"}})


@pytest.mark.parametrize(
    ("check", "outcome", "text"),
    [
        (check_api({"gitVersion": "v1.34.4"}, "https://api"), OK, "Kubernetes v1.34.4 at https://api"),
        (check_api({"major": "1", "minor": "31+", "gitVersion": "v1.31.2-eks"}, "https://api"), OK, "v1.31.2-eks"),
        (
            check_api({"major": "1", "minor": "30", "gitVersion": "v1.30.9"}, "https://api"),
            FAIL,
            "v1.30.9 at https://api is too old",
        ),
        (check_api(DOWN, "https://api"), FAIL, "no answer"),
        (check_crd({}, custom_resource_definition()), OK, "with all fields"),
        (check_crd({}, DENIED), OK, "is served"),
        (check_crd({}, older_crd()), FAIL, "it lacks spec.restart"),
        (check_crd(GONE, GONE), FAIL, "the cluster does not serve ddpjobs.ddpjob.dev"),
        (check_crd(DENIED, DENIED), SKIP, "you may not"),
        (check_operator([operator(1)], []), OK, "ns/ddpjob-operator is ready"),
        (check_operator([operator(0)], [STUCK_POD]), FAIL, "has no ready pod: op-1: ErrImagePull: no"),
        (check_operator([operator(0)], DENIED), FAIL, "has no ready pod"),
        (check_operator([operator(2, replicas=2)], []), OK, "ns/ddpjob-operator is ready"),
        (check_operator([operator(1), operator(1)], []), FAIL, "2 operators are installed"),
        (check_operator([], []), FAIL, "it has no deployment"),
        (check_operator(DENIED, DENIED), SKIP, "you may not"),
        (check_leader([lease("op-1_5b1c", 3)]), OK, "op-1 (term 3)"),
        (check_leader([lease("", 3)]), FAIL, "no operator holds the Lease"),
        (check_leader([]), FAIL, "no operator holds the Lease"),
        (check_leader(DENIED), SKIP, "you may not"),
        (check_health("ok\n"), OK, "/readyz returns ok"),
        (check_health(Unavailable("the watch of pods is silent")), FAIL, "the watch of pods is silent"),
        (check_health(DENIED), SKIP, "you may not"),
        (check_health(None), SKIP, "no ready pod"),
        (check_rights([Right("get ddpjobs", allowed=True)], "ns"), OK, "is allowed in namespace ns"),
        (check_rights([Right("list pods", allowed=False)], "ns"), FAIL, "you may not: list pods"),
        (check_quota([QUOTA], "ns"), FAIL, "q: pods 2 of 2"),
        (check_quota([ROOMY], "ns"), OK, "1 with room left"),
        (check_quota([], "ns"), OK, "none in namespace ns"),
        (check_nodes([node("a"), node("b")]), OK, "2 of 2 accept pods"),
        (check_nodes([node("a"), node("b", "Unknown")]), FAIL, "1 of 2 accept pods; not ready: b"),
        (check_nodes([node("a", unschedulable=True)]), FAIL, "0 of 1 accept pods"),
        (check_nodes(DENIED), SKIP, "you may not"),
        (check_dns([named("kube-dns")], [SLICE]), OK, "2 addresses ready"),
        (check_dns([named("kube-dns")], [EMPTY_SLICE]), FAIL, "the ranks cannot find each other"),
        (check_dns([named("kube-dns")], DENIED), SKIP, "you may not"),
        (check_dns([], []), SKIP, "k8s-app=kube-dns"),
    ],
)
def test_a_part_of_the_installation_is_sound_broken_or_cannot_be_judged(
    check: Check, outcome: Outcome, text: str
) -> None:
    assert (check.outcome, text in check.message) == (outcome, True), check
    assert check.remedy or check.outcome is not FAIL


SILENT = "the API server https://api cannot be reached: timed out"
UNWELL = "the API server is unavailable: GET /x returned 500 Internal Server Error: the event loop was late by 40 s"


@pytest.mark.parametrize(("said", "left"), [(SILENT, "timed out"), (UNWELL, "the event loop was late by 40 s")])
def test_an_operator_that_does_not_answer_is_not_blamed_on_the_api_server(said: str, left: str) -> None:
    check = check_health(Unavailable(said))
    assert (check.outcome, "the operator does not answer" in check.message) == (FAIL, True)
    assert left in check.message
    assert "API server" not in check.message


def test_remedies_are_shown_only_where_something_is_wrong() -> None:
    lines = check_lines([Check("One", FAIL, "bad", "mend it"), Check("Other", OK, "good", "unsaid")])
    assert [line.text.strip() for line in lines] == ["One    bad", "-> mend it", "Other  good"]
