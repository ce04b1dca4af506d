from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ddpjob_core.observations.observe import pod_record
from ddpjob_core.observations.observed import PodRecord, Running, Terminated
from ddpjob_core.observations.sightings import sighted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=7)
YEARS_AGO = "2020-01-01T00:00:00Z"


def pod(**status: object) -> PodRecord:
    metadata = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"}
    record = pod_record({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status})
    assert record is not None
    return record


def deleted(grace: object) -> PodRecord:
    metadata = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"}
    ending = {"deletionTimestamp": YEARS_AGO, "deletionGracePeriodSeconds": grace}
    record = pod_record({"metadata": metadata | ending})
    assert record is not None
    return record


def trainer(state: str) -> list[dict[str, object]]:
    times = {"startedAt": YEARS_AGO} | ({"exitCode": 1, "finishedAt": YEARS_AGO} if state == "terminated" else {})
    return [{"name": "trainer", "state": {state: times}}]


def test_a_state_is_as_old_as_the_operators_knowledge_of_it() -> None:
    runs = sighted(None, pod(phase="Running", containerStatuses=trainer("running")), NOW)
    assert isinstance(runs.trainer, Running)
    assert runs.trainer.seen == NOW
    still = sighted(runs, pod(phase="Running", containerStatuses=trainer("running")), LATER)
    assert isinstance(still.trainer, Running)
    assert still.trainer.seen == NOW
    ended = sighted(still, pod(phase="Failed", containerStatuses=trainer("terminated")), LATER)
    assert isinstance(ended.trainer, Terminated)
    assert ended.trainer.seen == LATER


def test_a_grace_period_ends_by_the_operators_clock_and_only_ever_earlier() -> None:
    first = sighted(None, deleted(30), NOW)
    assert first.deletion_time == NOW + timedelta(seconds=30)
    assert sighted(first, deleted(30), LATER).deletion_time == NOW + timedelta(seconds=30)
    assert sighted(first, deleted(1), LATER).deletion_time == LATER + timedelta(seconds=1)
    assert sighted(first, deleted(600), LATER).deletion_time == NOW + timedelta(seconds=30)


def test_a_grace_period_that_cannot_be_read_is_over() -> None:
    for grace in (None, -5, "soon", True):
        assert sighted(None, deleted(grace), NOW).deletion_time == NOW
    assert sighted(None, deleted(2**80), NOW).deletion_time is not None


def test_a_node_is_silent_since_the_operator_saw_the_pod_assigned_to_it() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": YEARS_AGO}]
    assigned = sighted(None, pod(phase="Pending", conditions=conditions), NOW)
    assert assigned.unadmitted_since == NOW
    assert sighted(assigned, pod(phase="Pending", conditions=conditions), LATER).unadmitted_since == NOW
    assert sighted(assigned, pod(phase="Pending", startTime=YEARS_AGO), LATER).unadmitted_since is None


def test_another_pod_of_the_name_is_seen_for_the_first_time() -> None:
    before = replace(sighted(None, deleted(30), NOW), uid="another")
    assert sighted(before, deleted(30), LATER).deletion_time == LATER + timedelta(seconds=30)
