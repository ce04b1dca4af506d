"""Raw objects become records whatever they look like."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob_core.api.constants import ANNOTATION_MEMBERSHIP, ANNOTATION_SPEC_HASH, LABEL_JOB
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.shared import shared_names
from ddpjob_core.decide import decide
from ddpjob_core.observations.observe import (
    controller_uid,
    job_record,
    network_policy_record,
    pod_record,
    service_record,
    terminated,
)
from ddpjob_core.observations.observed import InitFailure, JobRecord, Observed, Running, Terminated, Waiting

Json = dict[str, Any]

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_KEYS = st.sampled_from(
    [
        *("metadata", "spec", "status", "name", "namespace", "uid", "labels", "ownerReferences", "controller", "type"),
        *("containerStatuses", "initContainerStatuses", "state", "running", "waiting", "terminated", "exitCode"),
        *("conditions", "deletionTimestamp", "creationTimestamp", "generation", "attempt", "podsCreated", "restarts"),
        *("trainer", "image", "nodes", "phase", "reason", "message", "startedAt", "resourceVersion", "progress"),
    ]
)
_JSON = st.recursive(
    _SCALARS,
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=4), children, max_size=6)
    ),
    max_leaves=25,
)
_IDENTITY = {"namespace": "default", "name": "digits", "uid": "u1", "resourceVersion": "5", "generation": 2}


@given(_JSON)
@settings(max_examples=300, deadline=None)
def test_no_json_whatever_makes_observing_raise(raw: object) -> None:
    for parse in (pod_record, service_record, network_policy_record, job_record, controller_uid):
        parse(raw)


@given(_JSON, _JSON, _JSON)
@settings(max_examples=300, deadline=None)
def test_an_object_that_can_be_named_always_has_a_record(spec: object, status: object, labels: object) -> None:
    raw = {"metadata": {**_IDENTITY, "labels": labels}, "spec": spec, "status": status}
    for parse in (pod_record, service_record, network_policy_record, job_record):
        record = parse(raw)
        assert record is not None
        assert record.name == "digits"
    job = job_record(raw)
    assert job is not None
    assert (job.spec is None) == (job.spec_error is not None)


@given(_JSON, _JSON)
@settings(max_examples=200, deadline=None)
def test_nothing_is_done_about_a_job_that_cannot_be_read(spec: object, status: object) -> None:
    job = job_record({"metadata": _IDENTITY, "spec": spec, "status": status})
    assert job is not None
    plan = decide(Observed(job, datetime(2026, 1, 1, tzinfo=UTC)))
    if job.unreadable is not None:
        assert (plan.actions, plan.status, plan.poll) == ((), None, ())
        assert plan.remark is not None or (job.status is not None and job.status.finished)


@pytest.mark.parametrize("missing", ["namespace", "name", "uid"])
def test_an_object_without_identity_has_no_record(missing: str) -> None:
    metadata = {key: value for key, value in _IDENTITY.items() if key != missing}
    assert pod_record({"metadata": metadata}) is None


def test_a_spec_that_cannot_be_understood_is_named_by_its_field() -> None:
    job = job_record({"metadata": _IDENTITY, "spec": {"nodes": 0, "trainer": {"image": "x"}}})
    assert job is not None
    assert job.spec is None
    assert job.spec_error is not None
    assert job.spec_error.startswith("spec.nodes: ")


def test_the_wire_form_of_a_field_is_what_an_error_names() -> None:
    job = job_record({"metadata": _IDENTITY, "spec": {"gracePeriodSeconds": "long", "trainer": {"image": "x"}}})
    assert job is not None
    assert (job.spec_error or "").startswith("spec.gracePeriodSeconds: ")


def status_of(status: object) -> DDPJobStatus | None:
    job = job_record({"metadata": _IDENTITY, "spec": {"trainer": {"image": "x"}}, "status": status})
    assert job is not None
    return job.status


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        "Running",
        [],
        {"attempt": "one", "podsCreated": True},
        {"attempt": 1},
        {"attempt": 1, "podsCreated": {}},
    ],
)
def test_a_status_without_the_attempt_counts_as_erased_and_is_never_guessed(status: object) -> None:
    assert status_of(status) is None


def test_a_broken_part_of_a_status_costs_only_that_part() -> None:
    good = {
        "type": "Training",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "R",
        "message": "",
    }
    status = status_of(
        {
            "attempt": 3,
            "podsCreated": True,
            "restarts": {"counted": 2},
            "phase": "Dancing",
            "conditions": [{"type": "Unheard"}, good],
            "progress": {"step": "many"},
        }
    )
    assert status is not None
    assert (status.attempt, status.pods_created, status.restarts.counted) == (3, True, 2)
    assert status.holds(ConditionType.TRAINING)
    assert status.progress is None


def test_the_status_that_a_newer_version_has_written_is_kept_as_it_is() -> None:
    written = {"attempt": 3, "podsCreated": True, "lease": {"holder": "x"}}
    job = job_record({"metadata": _IDENTITY, "spec": {"trainer": {"image": "x"}}, "status": written})
    assert job is not None
    assert job.unreadable == "status.lease"
    assert job.raw_status == written
    assert job.status is not None
    known = {"attempt": 3, "podsCreated": True}
    job = job_record({"metadata": _IDENTITY, "spec": {"trainer": {"image": "x"}}, "status": known})
    assert job is not None
    assert (job.unreadable, job.raw_status) == (None, None)


def pod(**parts: Any) -> Json:
    return {"metadata": {**_IDENTITY, **parts.pop("metadata", {})}, **parts}


def test_only_the_container_named_trainer_shows_the_state_of_the_training() -> None:
    record = pod_record(
        pod(
            status={
                "containerStatuses": [
                    {"name": "sidecar", "state": {"running": {}}},
                    {"name": "trainer", "state": {"terminated": {"exitCode": 7, "reason": "Error", "message": "m"}}},
                ]
            }
        )
    )
    assert record is not None
    assert record.trainer == terminated(7, "m", reason="Error")
    assert record.others_running


def test_an_exit_without_a_readable_code_is_not_a_success() -> None:
    record = pod_record(pod(status={"containerStatuses": [{"name": "trainer", "state": {"terminated": {}}}]}))
    assert record is not None
    assert isinstance(record.trainer, Terminated)
    assert record.trainer.exit_code != 0


@pytest.mark.parametrize(
    ("status", "obstacle"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU"}
                ]
            },
            Waiting("Unschedulable", "no GPU"),
        ),
        (
            {
                "initContainerStatuses": [
                    {"name": "i", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}
                ]
            },
            Waiting("ErrImagePull", "m"),
        ),
        (
            {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
            Waiting("Error", "init container i exited with code 1"),
        ),
        ({"containerStatuses": [{"name": "s", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, None),
        ({"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}]}, None),
    ],
)
def test_what_prevents_a_pod_from_starting_is_reported(status: Json, obstacle: Waiting | None) -> None:
    record = pod_record(pod(status=status))
    assert record is not None
    assert record.obstacle == obstacle


def test_an_init_container_that_failed_is_known_by_name() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such bucket"}}
    record = pod_record(pod(status={"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": ended}]}))
    assert record is not None
    assert record.init_failure == InitFailure("fetch", Terminated(3, None, "Error", "no such bucket", None))
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    record = pod_record(pod(status={"initContainerStatuses": [{"name": "fetch", "state": done}]}))
    assert record is not None
    assert record.init_failure is None


def test_a_pod_is_owned_by_its_controller_alone() -> None:
    references = [{"uid": "a"}, {"uid": "b", "controller": True}]
    record = pod_record(pod(metadata={"ownerReferences": references}))
    assert record is not None
    assert record.owner_uid == "b"


@pytest.mark.parametrize(("launcher", "has_key"), [("mpirun", True), ("torchrun", False)])
def test_what_a_pod_mounts_is_read_under_the_names_that_it_was_created_with(launcher: str, *, has_key: bool) -> None:
    spec = DDPJobSpec.model_validate({"trainer": {"image": "i", "script": "t.py"}, "nodes": 2, "launcher": launcher})
    job = JobRecord("n", "digits", "job-uid", "1", 1, deleting=False, spec=spec)
    shared = shared_names(job, spec, "a process's own")
    raw = build_pod(job, spec, 0, 1, shared=shared)
    raw["metadata"]["uid"] = "u"
    waits = {"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
    record = pod_record({**raw, "spec": {**raw["spec"], "nodeName": "n1"}, "status": waits})
    assert record is not None
    assert (record.launcher, record.ssh_key) == (shared.launcher, shared.ssh_key)
    assert (shared.ssh_key is not None) is has_key
    # Another process goes on with the key that the attempt has, and with a launcher of its own.
    later = shared_names(job, spec, "another's", [record])
    assert later.ssh_key == shared.ssh_key
    assert later.launcher != shared.launcher
    for broken in ({"volumes": [{"name": "ddpjob-ssh", "secret": []}]}, {"volumes": [{"name": "ddpjob-ssh"}]}):
        assert getattr(pod_record(pod(spec=broken)), "ssh_key", "") is None


def test_a_running_trainer_a_disruption_and_an_address_are_kept() -> None:
    record = pod_record(
        pod(
            spec={"nodeName": "n1"},
            status={
                "phase": "Running",
                "podIP": "fd00::1",
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
                ],
                "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
            },
        )
    )
    assert record is not None
    assert isinstance(record.trainer, Running)
    assert (record.pod_ip, record.scheduled, record.ready) == ("fd00::1", True, True)
    assert record.disruption == "EvictionByEvictionAPI"


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({"phase": "Pending"}, datetime(2026, 1, 1, tzinfo=UTC)),
        ({"phase": "Pending", "startTime": "2026-01-01T00:00:01Z"}, None),
        ({"phase": "Running"}, None),
    ],
)
def test_a_pod_is_known_to_wait_for_its_kubelet_until_that_has_seen_it(
    status: dict[str, Any], since: datetime | None
) -> None:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    record = pod_record(pod(spec={"nodeName": "n1"}, status={**status, "conditions": [condition]}))
    assert record is not None
    assert record.unadmitted_since == since


def test_a_deletion_with_an_unreadable_time_is_still_a_deletion() -> None:
    record = pod_record(pod(metadata={"deletionTimestamp": "soon"}))
    assert record is not None
    assert record.deletion_time is not None


def test_a_record_stays_small_whatever_its_pod_holds() -> None:
    """Any tenant may give the label that is watched to pods of half a megabyte each."""
    text = "x" * 250_000
    metadata = {
        **_IDENTITY,
        "labels": {LABEL_JOB: text},
        "annotations": {ANNOTATION_SPEC_HASH: text, ANNOTATION_MEMBERSHIP: text},
        "ownerReferences": [{"controller": True, "uid": text}],
    }
    containers = [{"name": f"container-{number}"} for number in range(5_000)]
    spec = {"containers": containers, "initContainers": containers}
    waiting = {"name": "trainer", "state": {"waiting": {"reason": text, "message": text}}}
    status = {"reason": text, "message": text, "containerStatuses": [waiting]}
    assert len(repr(pod_record({"metadata": metadata, "spec": spec, "status": status}))) < 8_000


def test_of_many_containers_the_first_and_the_last_ones_are_known_by_name() -> None:
    """A webhook adds its own before or after the others."""
    containers = [{"name": f"c{number}"} for number in range(1_000)]
    record = pod_record({"metadata": _IDENTITY, "spec": {"containers": containers}})
    assert record is not None
    assert {"c0", "c999"} <= set(record.containers)
