"""What kopf is given of jobs."""

import json
from typing import Any

import pytest

from ddpjob_core.engine.resting import RestingJob
from ddpjob_operator.job_stream import JobStream, WatchError


def job(name: str, *, version: str = "1", status: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": version, "generation": 1}
    spec = {"trainer": {"image": "i", "script": "t.py", "args": ["a" * 10_000]}}
    whole = {"apiVersion": "ddpjob.dev/v1alpha1", "kind": "DDPJob", "metadata": metadata, "spec": spec}
    return whole if status is None else {**whole, "status": status}


FINISHED = {
    "attempt": 0,
    "podsCreated": True,
    "conditions": [
        {
            "type": "Succeeded",
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
    ],
}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_is_passed_on_with_its_identity_and_its_record_is_taken_once(kind: str) -> None:
    stream = JobStream()
    line = stream.event(json.dumps({"type": kind, "object": job("digits")}).encode())
    assert len(line) < 400
    assert json.loads(line)["object"]["metadata"]["resourceVersion"] == "1"
    record = stream.take("uid-digits")
    assert record is not None
    assert record.spec is not None
    assert stream.take("uid-digits") is None


def test_the_newest_of_two_events_counts() -> None:
    stream = JobStream()
    for version in ("1", "2"):
        stream.event(json.dumps({"type": "MODIFIED", "object": job("digits", version=version)}).encode())
    record = stream.take("uid-digits")
    assert record is not None
    assert record.resource_version == "2"


@pytest.mark.parametrize(
    "event", [{"type": "BOOKMARK", "object": {"metadata": {}}}, {"type": "ERROR", "object": {"code": 410}}]
)
def test_what_is_about_no_job_is_passed_on_as_it_is(event: dict[str, Any]) -> None:
    assert json.loads(JobStream().event(json.dumps(event).encode())) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"[]",
        b'{"type": "ADDED"}',
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 500}}',
        b'{"type": "ERROR", "object": {}}',
        b'{"type": "ERROR", "object": null}',
    ],
)
def test_anything_but_an_event_is_an_error(line: bytes) -> None:
    with pytest.raises(WatchError, match=r"the watch sent"):
        JobStream().event(line)


async def test_a_list_is_passed_on_with_identities_and_finished_jobs_are_packed() -> None:
    stream = JobStream()
    items = [job("one"), job("two", status=FINISHED), {"metadata": {"name": "broken"}}]
    answer = await stream.listed(
        json.dumps({"kind": "DDPJobList", "items": items, "metadata": {"continue": "c"}}).encode()
    )
    assert answer["metadata"] == {"continue": "c"}
    assert [item["metadata"].get("name") for item in answer["items"]] == ["one", "two", None]
    assert isinstance(stream.take("uid-two"), RestingJob)
