"""What `ddpjob doctor` makes of what it reads, and what an answer of the API server means for a user."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cli_jobs import FAILED, NOW, RUNNING, SUCCEEDED, condition, job

from ddpjob.cluster.logs import LogLine, Source, choose_sources, labelled
from ddpjob.views.checks import (
    Check,
    Outcome,
    Right,
    check_api,
    check_crd,
    check_dns,
    check_health,
    check_lines,
    check_nodes,
    check_operator,
    check_quota,
    check_rights,
)
from ddpjob.views.exit_codes import ExitCode, exit_code
from ddpjob.views.job import JobEvent
from ddpjob.views.job_checks import Findings, check_job
from ddpjob.views.remedies import with_remedy
from ddpjob_core.api.answers import error_of_answer
from ddpjob_core.api.crd import custom_resource_definition
from ddpjob_core.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
)
from ddpjob_core.observations.observed import PodRecord, Running, Waiting

OK, FAIL, SKIP = Outcome.OK, Outcome.FAIL, Outcome.SKIP
DENIED = Forbidden("you may not", "ask for the right")
GONE = NotFound("it is not there")
DOWN = Unavailable("no answer", "try again")


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return named(name, spec=spec, status={"conditions": [{"type": "Ready", "status": ready}]})


def operator(ready: int, replicas: int = 1) -> dict[str, Any]:
    return named("ddpjob-operator", spec={"replicas": replicas}, status={"readyReplicas": ready} if ready else {})


def older_crd() -> dict[str, Any]:
    definition = json.loads(json.dumps(custom_resource_definition()))
    version = definition["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["restart"]
    return dict(definition)


STUCK_POD = named(
    "op-1", status={"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]}
)
SLICE = {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}, {"addresses": ["10.0.0.2"]}]}
EMPTY_SLICE = {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]}
QUOTA = named("q", status={"hard": {"pods": "2", "requests.cpu": "4"}, "used": {"pods": "2", "requests.cpu": "500m"}})
ROOMY = named("q", status={"hard": {"pods": "2", "memory": "1Gi"}, "used": {"pods": "1", "memory": "1Mi"}})


@pytest.mark.parametrize(
    ("check", "outcome", "text"),
    [
        (check_api({"gitVersion": "v1.34.4"}, "https://api"), OK, "Kubernetes v1.34.4 at https://api"),
        (check_api(DOWN, "https://api"), FAIL, "no answer"),
        (check_crd({}, custom_resource_definition()), OK, "with all fields"),
        (check_crd({}, DENIED), OK, "is served"),
        (check_crd({}, older_crd()), FAIL, "it lacks spec.restart"),
        (check_crd(GONE, GONE), FAIL, "the cluster does not serve ddpjobs.ddpjob.dev"),
        (check_crd(DENIED, DENIED), SKIP, "you may not"),
        (check_operator([operator(1)], []), OK, "ns/ddpjob-operator is ready"),
        (check_operator([operator(0)], [STUCK_POD]), FAIL, "has no ready pod: op-1: ErrImagePull: no"),
        (check_operator([operator(0)], DENIED), FAIL, "has no ready pod"),
        (check_operator([operator(2, replicas=2)], []), FAIL, "2 operators are configured"),
        (check_operator([operator(1), operator(1)], []), FAIL, "2 operators are configured"),
        (check_operator([], []), FAIL, "it has no deployment"),
        (check_operator(DENIED, DENIED), SKIP, "you may not"),
        (check_health("ok\n"), OK, "/healthz answers ok"),
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


def test_remedies_are_shown_only_where_something_is_wrong() -> None:
    lines = check_lines([Check("One", FAIL, "bad", "mend it"), Check("Other", OK, "good", "unsaid")])
    assert [line.text.strip() for line in lines] == ["One    bad", "-> mend it", "Other  good"]


# A job that does not get on


def pod(ordinal: int, **fields: Any) -> PodRecord:
    made = PodRecord("team", f"digits-a0-{ordinal}", f"u{ordinal}", "1", "u", "digits", 0, ordinal, "Pending")
    return replace(made, **{"scheduled": True, **fields})


RUNNING_POD = {"phase": "Running", "trainer": Running(NOW)}
FOUND = Findings(
    job=job(**RUNNING),
    pods=[pod(0, **RUNNING_POD), pod(1, **RUNNING_POD)],
    service=named("digits"),
    slices=[SLICE],
    warnings=[],
    now=NOW + timedelta(minutes=1),
)
NO_CLAIM = Waiting("Unschedulable", 'persistentvolumeclaim "nope" not found')
PULL = Waiting("ImagePullBackOff", "Back-off pulling image nosuch:1")
CONFIG = Waiting("CreateContainerConfigError", 'secret "s" not found')
MOUNT = [("digits-a0-1", JobEvent(NOW, "Warning", "FailedMount", 'configmap "c" not found'))]
TAKEN = [condition("PodsScheduled", "False", "NameTaken", "service digits exists and belongs to Deployment x")]
APART = [
    condition(
        "RendezvousReady", "False", "NameNotFound", "2/2 nodes are up, 1 cannot reach node 0; digits-a0-1: not found"
    )
]
STALL = [condition("TrainingStalled", "True", "NoStep", "rank 2 is behind")]


def judged(found: Findings) -> dict[str, Check]:
    return {check.name: check for check in check_job(found)}


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"pods": [pod(0, scheduled=False, obstacle=NO_CLAIM)]}, "Scheduling", 'persistentvolumeclaim "nope"'),
        ({"pods": [pod(0, trainer=PULL), pod(1, **RUNNING_POD)]}, "Image", "digits-a0-0: ImagePullBackOff"),
        ({"pods": [pod(0, trainer=CONFIG)]}, "Containers", 'CreateContainerConfigError: secret "s"'),
        ({"pods": [pod(0, **RUNNING_POD), pod(1)], "warnings": MOUNT}, "Containers", 'configmap "c" not found'),
        ({"service": GONE}, "Names", "the job's service: it is not there"),
        ({"slices": [EMPTY_SLICE]}, "Names", "0 addresses for 2 running pods"),
        ({"job": job(**{**RUNNING, "conditions": APART})}, "Rendezvous", "digits-a0-1: not found"),
        ({"job": job(**{**RUNNING, "conditions": TAKEN})}, "Objects", "belongs to Deployment x"),
        ({"job": job(**{**RUNNING, "conditions": STALL})}, "Progress", "rank 2 is behind"),
        ({"job": job(**FAILED)}, "End", "MaxRestartsExceeded"),
        ({"job": job(observedGeneration=0)}, "Operator", "has not seen the latest change"),
        ({"job": job(), "now": NOW + timedelta(minutes=1)}, "Operator", "it has never seen the job"),
        (
            {"job": job(**{**FAILED, "conditions": [condition("Failed", "True", "InvalidSpec", "spec.template: no")]})},
            "Spec",
            "spec.template: no",
        ),
    ],
)
def test_what_keeps_a_job_is_named_by_its_check(changes: dict[str, Any], name: str, text: str) -> None:
    checks = judged(replace(FOUND, **changes))
    assert checks[name].outcome is FAIL, checks
    assert text in checks[name].message
    assert checks[name].remedy


def test_a_job_that_runs_well_fails_no_check() -> None:
    checks = judged(FOUND)
    assert [name for name, check in checks.items() if check.outcome is FAIL] == []
    assert checks["Containers"].message == "2 of 2 are running or have ended"


def test_a_job_that_is_only_just_there_is_not_blamed_on_the_operator() -> None:
    assert judged(replace(FOUND, job=job(), now=NOW))["Operator"].outcome is SKIP


def test_addresses_have_a_while_to_become_known() -> None:
    assert judged(replace(FOUND, slices=[EMPTY_SLICE], now=NOW))["Names"].outcome is OK


@pytest.mark.parametrize("error", [DENIED, DOWN])
def test_a_service_that_could_not_be_read_is_not_said_to_be_missing(error: ApiError) -> None:
    check = judged(replace(FOUND, service=error))["Names"]
    assert (check.outcome, check.message) == (SKIP, str(error))


@pytest.mark.parametrize(
    ("since", "outcome"),
    [
        ((0, 0), FAIL),
        # Its program is still being loaded, or the operator has not looked at it again.
        ((0, 55), SKIP),
        ((55, 55), SKIP),
    ],
)
def test_nodes_that_run_have_a_while_to_meet(since: tuple[int, ...], outcome: Outcome) -> None:
    pods = [pod(n, phase="Running", trainer=Running(NOW + timedelta(seconds=at))) for n, at in enumerate(since)]
    check = judged(replace(FOUND, job=job(**{**RUNNING, "conditions": APART}), pods=pods))["Rendezvous"]
    assert check.outcome is outcome
    assert "2/2 nodes are up, 1 cannot reach node 0" in check.message


def test_nodes_that_are_not_up_are_not_blamed_on_the_rendezvous() -> None:
    waiting = job(**{**RUNNING, "conditions": [condition("RendezvousReady", "False", "X", "1/2 nodes are up; rest")]})
    check = judged(replace(FOUND, job=waiting, pods=[pod(0, **RUNNING_POD), pod(1)]))["Rendezvous"]
    assert (check.outcome, check.message) == (SKIP, "1/2 nodes are up")


def test_an_old_warning_about_a_pod_that_runs_by_now_is_no_finding() -> None:
    assert judged(replace(FOUND, warnings=MOUNT))["Containers"].outcome is OK


def test_pods_of_earlier_attempts_do_not_count() -> None:
    left = replace(pod(2, trainer=PULL), attempt=7)
    assert judged(replace(FOUND, pods=[*FOUND.pods, left]))["Image"].outcome is OK  # type: ignore[misc]


def test_a_job_that_has_succeeded_needs_nothing_more() -> None:
    assert list(judged(replace(FOUND, job=job(**SUCCEEDED)))) == ["Spec", "Operator", "End"]


def test_without_the_right_to_see_pods_the_rest_is_judged() -> None:
    checks = judged(replace(FOUND, pods=DENIED))
    assert checks["Pods"].outcome is SKIP
    assert "Progress" in checks


# Answers of the API server


def answer(code: int, message: str, **status: Any) -> ApiError:
    return refused(code, json.dumps({"kind": "Status", "message": message, **status}).encode(), "GET /x")


def refused(code: int, body: bytes, request: str) -> ApiError:
    return with_remedy(error_of_answer(code, body, {}, request))


@pytest.mark.parametrize(
    ("error", "kind", "code", "remedy"),
    [
        (answer(401, "Unauthorized"), Unauthorized, ExitCode.CLUSTER, "sign in"),
        (answer(403, "user may not"), Forbidden, ExitCode.CLUSTER, "missing permission"),
        (answer(403, "exceeded quota: q"), Forbidden, ExitCode.CLUSTER, "kubectl describe quota"),
        (answer(403, "admission webhook x denied"), Forbidden, ExitCode.CLUSTER, "owner of the webhook"),
        (answer(404, 'ddpjobs "x" not found'), NotFound, ExitCode.NOT_FOUND, ""),
        (answer(404, "the server could not find the requested resource"), NotFound, ExitCode.NOT_FOUND, "crd"),
        (answer(409, "exists", reason="AlreadyExists"), AlreadyExists, ExitCode.USAGE, ""),
        (answer(409, "changed", reason="Conflict"), Conflict, ExitCode.FAILED, "try again"),
        (answer(410, "too old"), Expired, ExitCode.CLUSTER, ""),
        (answer(422, "is invalid"), Invalid, ExitCode.USAGE, ""),
        (answer(429, "slow down"), Unavailable, ExitCode.CLUSTER, "try again"),
        (answer(500, "etcd"), Unavailable, ExitCode.CLUSTER, "try again"),
        (refused(503, b"the watch is silent", "GET /healthz"), Unavailable, ExitCode.CLUSTER, "try again"),
        (refused(404, b"<html>", "GET /x"), NotFound, ExitCode.NOT_FOUND, ""),
    ],
)
def test_a_refusal_has_a_kind_an_exit_code_and_a_remedy(
    error: ApiError, kind: type[ApiError], code: ExitCode, remedy: str
) -> None:
    assert type(error) is kind
    assert exit_code(error) is code
    assert remedy in error.remedy


def test_what_stands_before_the_api_server_is_quoted() -> None:
    assert "503 Service Unavailable: the watch is silent" in str(refused(503, b"the watch is silent", "GET /healthz"))


def test_the_fields_that_the_server_names_are_kept() -> None:
    causes = [{"field": "spec.nodes", "message": "too many"}, {"field": "<nil>", "message": "odd"}]
    error = answer(422, "is invalid", details={"causes": causes})
    assert isinstance(error, Invalid)
    assert error.fields == (("spec.nodes", "too many"), ("", "odd"))


def test_unknown_fields_are_read_from_the_message_of_strict_decoding() -> None:
    error = answer(400, 'strict decoding error: unknown field "spec.nods", unknown field "spec.x"')
    assert isinstance(error, Invalid)
    assert [path for path, _ in error.fields] == ["spec.nods", "spec.x"]


# Logs

PODS = [replace(pod(ordinal), attempt=attempt) for attempt in (1, 3) for ordinal in (0, 1)]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, [(3, 0, "0-1"), (3, 1, "2-3")]),
        ({"current": 4}, [(3, 0, "0-1"), (3, 1, "2-3")]),
        ({"attempt": 1}, [(1, 0, "0-1"), (1, 1, "2-3")]),
        ({"rank": 3}, [(3, 1, "2-3")]),
        ({"rank": 1, "processes": 1}, [(3, 1, "1")]),
    ],
)
def test_logs_are_those_of_the_newest_attempt_that_has_pods_unless_asked_otherwise(
    asked: dict[str, int], chosen: list[tuple[int, int, str]]
) -> None:
    sources = choose_sources("digits", PODS, **{"current": 3, "processes": 2, **asked})
    assert [(source.attempt, source.ordinal, source.ranks) for source in sources] == chosen


@pytest.mark.parametrize(
    ("pods", "asked", "text"),
    [
        ([], {}, "digits has no pods"),
        (PODS, {"attempt": 2}, "has no pods of attempt 2"),
        (PODS, {"rank": 9}, "no pod with rank 9"),
    ],
)
def test_a_log_that_is_not_there_is_told_with_what_is(pods: list[PodRecord], asked: dict[str, int], text: str) -> None:
    with pytest.raises(NotFound, match=text) as missing:
        choose_sources("digits", pods, **{"current": 3, "processes": 2, **asked})
    assert missing.value.remedy


def test_lines_of_several_pods_carry_pod_and_ranks() -> None:
    source = Source("digits-a0-1", 0, 1, "2-3")
    line = source.line("2026-01-01T00:00:00.1Z loss 0.1  ")
    assert line == LogLine("2026-01-01T00:00:00.1Z", "digits-a0-1", 0, 1, "2-3", "loss 0.1  ")
    assert labelled(line, 2) == "[digits-a0-1 ranks 2-3] loss 0.1  "
    assert labelled(line, 1) == "loss 0.1  "
