"""What `ddpjob doctor` says about the operators."""

from typing import Any

import pytest
from api_answers import DENIED, named

from ddpjob.views.checks import Check, Outcome
from ddpjob.views.operator_checks import check_health, check_leader, check_operator
from ddpjob_core.api.errors import Unavailable
from ddpjob_core.api.scope import Scope

OK, FAIL, SKIP = Outcome.OK, Outcome.FAIL, Outcome.SKIP


def operator(ready: int, *arguments: str, name: str = "ddpjob-operator") -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "operator", "args": list(arguments)}]}}
    return named(name, spec={"template": pod}, status={"readyReplicas": ready} if ready else {})


def lease(holder: str, term: int, *namespaces: str) -> dict[str, Any]:
    scope = Scope.parse(namespaces)
    made = named(scope.lease, spec={"holderIdentity": holder, "leaseTransitions": term})
    made["metadata"]["annotations"] = scope.annotations
    return made


def stuck(name: str) -> dict[str, Any]:
    waiting = {"reason": "ErrImagePull", "message": f"no image for {name}"}
    return named(name, status={"containerStatuses": [{"state": {"waiting": waiting}}]})


EVERYWHERE = operator(1)
SHARD = operator(1, "--namespace=a,b", name="one")
OTHER = operator(1, "--namespace", "c", "--namespace=d", name="two")
REMARK = "namespace b is not served: pods is forbidden"


@pytest.mark.parametrize(
    ("check", "outcome", "text"),
    [
        (check_operator([EVERYWHERE], []), OK, "ns/ddpjob-operator is ready"),
        (check_operator([operator(2)], []), OK, "ns/ddpjob-operator is ready"),
        (check_operator([operator(0)], [stuck("op-1")]), FAIL, "has no ready pod: op-1: ErrImagePull: no image"),
        (check_operator([operator(0)], DENIED), FAIL, "has no ready pod"),
        (check_operator([EVERYWHERE, EVERYWHERE], []), FAIL, "both serve all namespaces: one stands by"),
        (check_operator([EVERYWHERE, SHARD], []), FAIL, "ns/ddpjob-operator and ns/one both serve namespaces a, b"),
        (
            check_operator([SHARD, OTHER, operator(1, "--namespace=d", name="three")], []),
            FAIL,
            "ns/two and ns/three both serve namespace d",
        ),
        (check_operator([SHARD, OTHER], []), OK, "ns/one (namespaces a, b), ns/two (namespaces c, d) are ready"),
        (check_operator([SHARD, operator(1, "--namespace=$(MINE)")], []), OK, "ddpjob-operator (namespaces unknown)"),
        (
            check_operator([SHARD, operator(0, "--namespace=c", name="two")], [stuck("one-1"), stuck("two-1")]),
            FAIL,
            "ns/two has no ready pod: two-1: ErrImagePull",
        ),
        (check_operator([], []), FAIL, "it has no deployment"),
        (check_operator(DENIED, DENIED), SKIP, "you may not"),
        (check_leader([lease("op-1_5b1c", 3)], [EVERYWHERE], "team"), OK, "op-1 (term 3)"),
        (check_leader([lease("op-1_5b1c", 3)], DENIED, "team"), OK, "op-1 (term 3)"),
        (check_leader([lease("", 3)], [EVERYWHERE], "team"), FAIL, "no operator holds the Lease: no job"),
        (check_leader([], [], "team"), FAIL, "no operator holds the Lease: no job"),
        (check_leader(DENIED, [], "team"), SKIP, "you may not"),
        (
            check_leader([lease("one_1", 3, "a,b"), lease("two_1", 9, "c,d")], [SHARD, OTHER], "d"),
            OK,
            "one (term 3, namespaces a, b), two (term 9, namespaces c, d)",
        ),
        (
            check_leader([lease("one_1", 3, "a,b"), lease("", 9, "c,d")], [SHARD, OTHER], "a"),
            FAIL,
            "no operator holds the Lease for namespaces c, d: no job",
        ),
        (
            check_leader([lease("one_1", 3, "a,b")], [SHARD], "team"),
            FAIL,
            "no operator serves namespace team: one (term 3, namespaces a, b)",
        ),
        (
            check_leader([named(Scope.of("a", "b").lease, spec={"holderIdentity": "one"})], [], "team"),
            OK,
            "one (term 0, namespaces unknown)",
        ),
        (check_health({"one": "ok\n"}), OK, "/readyz returns ok"),
        (check_health({"one": "ok\n", "two": "ok\n"}), OK, "/readyz of 2 pods returns ok"),
        (check_health({"one": Unavailable("the watch of pods is silent")}), FAIL, "the watch of pods is silent"),
        (check_health({"one": f"ok\n{REMARK}\n"}), FAIL, REMARK),
        (check_health({"one": "ok\n", "two": f"ok\n{REMARK}\n"}), FAIL, f"two: {REMARK}"),
        (check_health({"one": DENIED, "two": "ok\n"}), SKIP, "you may not"),
        (check_health(DENIED), SKIP, "you may not"),
        (check_health({}), SKIP, "no ready pod"),
    ],
)
def test_the_operators_are_sound_broken_or_cannot_be_judged(check: Check, outcome: Outcome, text: str) -> None:
    assert (check.outcome, text in check.message) == (outcome, True), check
    assert check.remedy or check.outcome is not FAIL


SILENT = "the API server https://api cannot be reached: timed out"
UNWELL = "the API server is unavailable: GET /x returned 500 Internal Server Error: the event loop was late by 40 s"


@pytest.mark.parametrize(("said", "left"), [(SILENT, "timed out"), (UNWELL, "the event loop was late by 40 s")])
def test_an_operator_that_does_not_answer_is_not_blamed_on_the_api_server(said: str, left: str) -> None:
    check = check_health({"one": Unavailable(said)})
    assert (check.outcome, "the operator does not answer" in check.message) == (FAIL, True)
    assert left in check.message
    assert "API server" not in check.message
