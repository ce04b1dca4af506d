"""Pods pass the Pod Security Standard `restricted` by default, and a job that says otherwise is obeyed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from world import World, spec_of

from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.observed import JobRecord

JOB = JobRecord("ml", "digits", "uid-1", "1", 1, deleting=False, spec=None)
STARTED = datetime(2026, 1, 1, tzinfo=UTC)
USER = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
ROOT = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod(template: dict[str, Any], status: DDPJobStatus | None = None, **trainer: Any) -> dict[str, Any]:
    spec = spec_of(template={"spec": template}, trainer={"image": "i", "script": "t.py", **trainer})
    built: dict[str, Any] = build_pod(replace(JOB, status=status), spec, 0, 0)["spec"]
    return built


def test_a_job_that_says_nothing_gets_what_restricted_asks_for() -> None:
    others = {"containers": [{"name": "sidecar", "image": "s"}], "initContainers": [{"name": "first", "image": "s"}]}
    spec = pod(others)
    assert spec["securityContext"] == USER
    assert [each["securityContext"] for each in (*spec["containers"], *spec["initContainers"])] == [CONTAINER] * 3


@pytest.mark.parametrize(
    ("users", "becomes"),
    [
        ({"runAsUser": 4242}, {"runAsNonRoot": True, "runAsUser": 4242}),
        ({"runAsUser": 0}, {"runAsUser": 0}),
        ({"runAsGroup": 5}, {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 5}),
        ({"runAsUser": None}, {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}),
        ({"runAsUser": 7, "runAsNonRoot": False}, {"runAsNonRoot": False, "runAsUser": 7}),
        ({"supplementalGroups": [44]}, {**USER, "supplementalGroups": [44]}),
        ({"seccompProfile": {"type": "Unconfined"}}, {**USER, "seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_what_a_pod_says_stays(users: dict[str, Any], becomes: dict[str, Any]) -> None:
    expected = {"seccompProfile": {"type": "RuntimeDefault"}, **becomes}
    assert pod({"securityContext": users})["securityContext"] == expected


@pytest.mark.parametrize(
    ("users", "becomes"),
    [
        ({"readOnlyRootFilesystem": True}, {**CONTAINER, "readOnlyRootFilesystem": True}),
        ({"runAsUser": 0}, ROOT),
        ({"runAsUser": 0, "runAsGroup": 7}, {**ROOT, "runAsGroup": 7}),
        ({"runAsUser": 9}, {**CONTAINER, "runAsUser": 9}),
        ({"privileged": True}, {**ROOT, "privileged": True}),
        ({"privileged": True, "runAsUser": 9}, {"privileged": True, "runAsUser": 9}),
        ({"privileged": True, "runAsNonRoot": True}, {"privileged": True, "runAsNonRoot": True}),
        ({"allowPrivilegeEscalation": True}, {**CONTAINER, "allowPrivilegeEscalation": True}),
        # A right of root alone: nobody else has what is added.
        ({"capabilities": {"add": ["IPC_LOCK"]}}, {**ROOT, "capabilities": {"add": ["IPC_LOCK"]}}),
        (
            {"runAsUser": 9, "capabilities": {"add": ["SYS_ADMIN"]}},
            {"runAsUser": 9, "capabilities": {"add": ["SYS_ADMIN"]}},
        ),
        (
            {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
            {**CONTAINER, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
        ),
        ({"capabilities": {"drop": ["NET_RAW"]}}, {**CONTAINER, "capabilities": {"drop": ["NET_RAW", "ALL"]}}),
        ({"capabilities": {"drop": []}}, CONTAINER),
        ({"capabilities": {"drop": ["ALL"]}}, CONTAINER),
        ({"capabilities": None}, CONTAINER),
    ],
)
def test_what_a_container_says_stays(users: dict[str, Any], becomes: dict[str, Any]) -> None:
    assert pod({}, securityContext=users)["containers"][0]["securityContext"] == becomes


def test_containers_of_a_pod_that_runs_as_root_keep_what_root_has() -> None:
    spec = pod(
        {"securityContext": {"runAsUser": 0}, "containers": [{"name": "s", "securityContext": {"runAsUser": 5}}]}
    )
    assert [each["securityContext"] for each in spec["containers"]] == [{}, {**CONTAINER, "runAsUser": 5}]


@pytest.mark.parametrize(
    "users",
    [{"runAsUser": 4242}, {"runAsUser": 0}, {"runAsNonRoot": True}],
    ids=["another user", "root", "no root"],
)
def test_a_privileged_container_is_not_made_root_where_its_pod_speaks_of_users(users: dict[str, Any]) -> None:
    spec = pod({"securityContext": users}, securityContext={"privileged": True})
    assert spec["containers"][0]["securityContext"] == {"privileged": True}


@pytest.mark.parametrize("users", [{"runAsUser": 4242}, {"runAsGroup": 5}], ids=["a user", "a group"])
def test_root_in_a_pod_with_a_user_or_group_of_its_own_gets_no_group(users: dict[str, Any]) -> None:
    spec = pod({"securityContext": users}, securityContext={"runAsUser": 0})
    assert spec["containers"][0]["securityContext"] == {"runAsUser": 0, "runAsNonRoot": False}


@pytest.mark.parametrize(
    "template",
    [
        {"securityContext": "root"},
        {"securityContext": [], "initContainers": {}},
        {"initContainers": [None, "x", {"securityContext": 1}]},
        {"containers": [{"name": "s", "securityContext": {"capabilities": ["ALL"]}}]},
        {"containers": [{"name": "s", "securityContext": {"capabilities": {"add": "ALL"}}}]},
        {"os": "windows"},
    ],
)
def test_a_part_of_the_wrong_type_is_left_to_the_api_server(template: dict[str, Any]) -> None:
    built = pod(template)
    for name, value in template.items():
        if name != "containers" and value:
            assert built[name] == value


def test_a_seccomp_profile_that_an_old_annotation_names_is_not_contradicted() -> None:
    annotations = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    spec = build_pod(JOB, spec_of(template={"metadata": {"annotations": annotations}}), 0, 0)["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}


def test_a_pod_for_windows_gets_none_of_it() -> None:
    spec = pod({"os": {"name": "windows"}})
    assert "securityContext" not in spec
    assert "securityContext" not in spec["containers"][0]


@pytest.mark.parametrize(
    ("status", "restricted"),
    [
        (None, True),
        (DDPJobStatus(), True),
        (DDPJobStatus(start_time=STARTED), False),
        (DDPJobStatus(start_time=STARTED, pod_security="Restricted"), True),
        (DDPJobStatus(attempt=1), False),
        (DDPJobStatus(attempt=1, pod_security="Restricted"), True),
    ],
    ids=[
        "new",
        "suspended since it was created",
        "begun before there were defaults",
        "begun with them",
        "mended, and begun before there were defaults",
        "mended, and begun with them",
    ],
)
def test_a_job_keeps_the_user_that_it_began_with(status: DDPJobStatus | None, restricted: bool) -> None:  # noqa: FBT001
    assert ("securityContext" in pod({}, status)) is restricted


@pytest.mark.parametrize("recorded", ["Restricted", None])
def test_a_restart_keeps_what_the_status_records(recorded: str | None) -> None:
    world = World(spec=spec_of())
    world.settle()
    world.run_all()
    world.settle()
    assert world.status is not None
    assert world.status.pod_security == "Restricted"
    world.status = world.status.model_copy(update={"pod_security": recorded})
    world.end("digits-a0-0", 1)
    for _ in range(40):
        world.advance(10)
        world.kubelet_removes_deleted_pods()
        world.settle()
    assert "digits-a1-0" in world.creations
    assert world.status.pod_security == recorded
