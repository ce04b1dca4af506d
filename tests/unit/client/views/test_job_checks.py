"""What `ddpjob doctor NAME` says about a job."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from api_answers import DENIED, DOWN, EMPTY_SLICE, GONE, SLICE, named, pod
from cli_jobs import FAILED, NOW, RUNNING, SLOWEST, SUCCEEDED, condition, job

from ddpjob.views.checks import (
    Check,
    Outcome,
)
from ddpjob.views.job import JobEvent
from ddpjob.views.job_checks import Findings, check_job
from ddpjob_core.api.errors import (
    ApiError,
)
from ddpjob_core.observations.observed import Running, Waiting

OK, FAIL, SKIP = Outcome.OK, Outcome.FAIL, Outcome.SKIP


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
NO_ROOM = Waiting("Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
NO_PORT = Waiting(
    "Unschedulable", "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
)
PULL = Waiting("ImagePullBackOff", "Back-off pulling image nosuch:1")
CONFIG = Waiting("CreateContainerConfigError", 'secret "s" not found')
MOUNT = [("digits-a0-1", JobEvent(NOW, "Warning", "FailedMount", 'configmap "c" not found'))]
FOREIGN = [
    condition(
        "PodsScheduled", "False", "NameTaken", "service digits: it exists already and is not this job's: delete it"
    )
]
TAKEN = [condition("PodsScheduled", "False", "NameTaken", "service digits exists and belongs to Deployment x")]
APART = [
    condition(
        "RendezvousReady", "False", "NameNotFound", "2/2 nodes are up, 1 cannot reach node 0; digits-a0-1: not found"
    )
]
STALL = [condition("TrainingStalled", "True", "NoStep", "rank 2 is behind")]
TRAINS = [*RUNNING["conditions"], condition("Training", "True", "StepsReported", "steps are reported")]


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
        ({"job": job(**{**RUNNING, "conditions": FOREIGN})}, "Objects", "is not this job's: delete it"),
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
def test_what_blocks_a_job_is_named_by_its_check(changes: dict[str, Any], name: str, text: str) -> None:
    checks = judged(replace(FOUND, **changes))
    assert checks[name].outcome is FAIL, checks
    assert text in checks[name].message
    assert checks[name].remedy


def test_a_rank_that_slows_down_the_others_blocks_nothing_but_is_worth_a_look() -> None:
    found = judged(replace(FOUND, job=job(**{**RUNNING, "conditions": TRAINS}, slowest=SLOWEST)))["Progress"]
    assert found.outcome is Outcome.WARN
    assert "rank 3 (digits-a0-1 on node node-1) takes 2.1 times as long" in found.message
    assert "data_workers" in found.remedy


def refused(reason: str, message: str) -> dict[str, Any]:
    return {"job": job(**{**RUNNING, "conditions": [condition("PodsScheduled", "False", reason, message)]})}


def mounting(message: str) -> dict[str, Any]:
    warnings = [("digits-a0-1", JobEvent(NOW, "Warning", "FailedMount", message))]
    return {"pods": [pod(0, **RUNNING_POD), pod(1)], "warnings": warnings}


UNFIT = 'pods "digits-a0-0" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
BARRED = 'pods is forbidden: User "system:serviceaccount:ddpjob-system:ddpjob-operator" cannot create resource "pods"'


@pytest.mark.parametrize(
    ("changes", "name", "remedy"),
    [
        (refused("Forbidden", UNFIT), "Objects", "spec.trainer.securityContext"),
        (refused("Forbidden", 'pods "p" is forbidden: exceeded quota: q'), "Objects", "kubectl describe quota"),
        (refused("Forbidden", 'admission webhook "x" denied the request: no'), "Objects", "owner of the webhook"),
        (refused("Forbidden", "maximum cpu usage per Container is 1"), "Objects", "limitrange"),
        (refused("Forbidden", "error looking up service account ns/x"), "Objects", "serviceAccountName"),
        (refused("Forbidden", BARRED), "Objects", "manifests/base"),
        (refused("Forbidden", "something else"), "Objects", "starts once it is allowed"),
        (mounting('configmap "digits-launcher-0a1b2c" not found'), "Containers", "the operator creates it again"),
        (mounting('secret "digits-ssh-u-1" not found'), "Containers", "the operator creates it again"),
        (mounting('configmap "digits-program" not found'), "Containers", "ddpjob delete digits, then run it again"),
        (mounting('configmap "c" not found'), "Containers", "kubectl get configmaps"),
        (mounting('references non-existent config key: b of secret "s"'), "Containers", "kubectl get secrets"),
        (mounting("failed to sync configmap cache: timed out"), "Containers", "nothing unless it lasts"),
        (mounting("driver refuses"), "Containers", "kubectl describe pod digits-a0-1"),
        ({"pods": [pod(0, trainer=CONFIG)]}, "Containers", "kubectl get secrets"),
        ({"pods": [pod(0, scheduled=False, obstacle=NO_CLAIM)]}, "Scheduling", "kubectl get pvc"),
        ({"pods": [pod(0, scheduled=False, obstacle=NO_ROOM)]}, "Scheduling", "kubectl describe nodes"),
        ({"pods": [pod(0, scheduled=False, obstacle=NO_PORT)]}, "Scheduling", "other ports"),
    ],
)
def test_what_is_advised_fits_the_cause(changes: dict[str, Any], name: str, remedy: str) -> None:
    check = judged(replace(FOUND, **changes))[name]
    assert (check.outcome, remedy in check.remedy) == (FAIL, True), check


def test_what_a_pod_without_a_node_waits_for_is_said_once() -> None:
    told = [("digits-a0-0", JobEvent(NOW, "Warning", "FailedScheduling", NO_ROOM.message))]
    checks = judged(replace(FOUND, pods=[pod(0, scheduled=False, obstacle=NO_ROOM)], warnings=told))
    assert [name for name, check in checks.items() if NO_ROOM.message in check.message] == ["Scheduling"]


def test_what_is_wrong_with_the_spec_is_said_once() -> None:
    failed = job(**{**FAILED, "conditions": [condition("Failed", "True", "InvalidSpec", "spec.template: no")]})
    checks = judged(replace(FOUND, job=failed))
    assert [name for name, check in checks.items() if "spec.template: no" in check.message] == ["Spec"]


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


def test_an_old_warning_about_a_pod_that_now_runs_does_not_count() -> None:
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
