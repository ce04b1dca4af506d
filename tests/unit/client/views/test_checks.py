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
    check_lines,
    check_nodes,
    check_quota,
    check_rights,
)
from ddpjob_core.api.crd import custom_resource_definition

OK, FAIL, SKIP = Outcome.OK, Outcome.FAIL, Outcome.SKIP


def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return named(name, spec=spec, status={"conditions": [{"type": "Ready", "status": ready}]})


def older_crd() -> dict[str, Any]:
    definition = json.loads(json.dumps(custom_resource_definition()))
    version = definition["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["restart"]
    return dict(definition)


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


def test_remedies_are_shown_only_where_something_is_wrong() -> None:
    lines = check_lines([Check("One", FAIL, "bad", "mend it"), Check("Other", OK, "good", "unsaid")])
    assert [line.text.strip() for line in lines] == ["One    bad", "-> mend it", "Other  good"]
