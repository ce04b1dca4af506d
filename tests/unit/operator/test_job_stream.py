"""What kopf is given of jobs."""

import json
from typing import Any

import pytest

from ddpjob_core.engine.resting import JobStore, RestingJob
from ddpjob_core.observations.spec_change import SpecChange
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


async def test_what_is_refused_in_one_namespace_slows_no_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("asyncio.sleep", pause)
    told: list[tuple[str, int, str, bool]] = []
    stream = JobStream(lambda path, code, why, *, watching: told.append((path, code, why, watching)), 8.0)
    body = json.dumps({"kind": "Status", "message": "ddpjobs is forbidden", "code": 403}).encode()
    for _ in range(7):
        assert await stream.refused("/a", 403, body, watching=False) == "ddpjobs is forbidden"
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0]
    assert told == [("/a", 403, "ddpjobs is forbidden", False)] * 7
    pauses.clear()
    assert not await stream.failed("/b", "broken")
    assert not await stream.failed("/b", "broken")
    assert await stream.failed("/b", "broken"), "all is listed again"
    stream.event(b'{"type": "BOOKMARK", "object": {}}', "/b")
    assert not await stream.failed("/b", "broken")
    assert pauses == [0.2, 0.4, 0.8, 0.2]
    pauses.clear()
    for _ in range(8):
        await stream.refused("/c", 422, b"", watching=True)
    assert pauses[-1] == 2.0, "only what may last for long is tried so rarely"


async def test_a_list_is_passed_on_with_identities_and_finished_jobs_are_packed() -> None:
    stream = JobStream()
    items = [job("one"), job("two", status=FINISHED), {"metadata": {"name": "broken"}}]
    answer = await stream.listed(
        json.dumps({"kind": "DDPJobList", "items": items, "metadata": {"continue": "c"}}).encode()
    )
    assert answer["metadata"] == {"continue": "c"}
    assert [item["metadata"].get("name") for item in answer["items"]] == ["one", "two", None]
    assert isinstance(stream.take("uid-two"), RestingJob)


def test_an_event_that_shows_what_a_write_was_answered_with_is_only_where_to_go_on_from() -> None:
    cached = JobStore()
    stream = JobStream(cached=cached)
    stream.event(json.dumps({"type": "ADDED", "object": job("digits")}).encode())
    record = stream.take("uid-digits")
    assert record is not None
    cached.remember(record)
    line = stream.event(json.dumps({"type": "MODIFIED", "object": job("digits")}).encode())
    assert json.loads(line) == {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}
    assert stream.take("uid-digits") is None
    # An end is news, whatever version it shows.
    ended = stream.event(json.dumps({"type": "DELETED", "object": job("digits")}).encode())
    assert json.loads(ended)["type"] == "DELETED"


def test_the_spec_of_the_newest_event_counts_whatever_its_generation() -> None:
    cached = JobStore()
    stream = JobStream(cached=cached)
    stream.event(json.dumps({"type": "ADDED", "object": job("digits")}).encode())
    first = stream.take("uid-digits")
    assert first is not None
    cached.seen(first)
    # The first one came by a watch from before a change of the definition, and lacked a field.
    completed = job("digits", version="2")
    completed["spec"]["nodes"] = 4
    stream.event(json.dumps({"type": "MODIFIED", "object": completed}).encode())
    second = stream.take("uid-digits")
    assert second is not None
    assert second.spec is not None
    assert second.spec.nodes == 4
    assert second.change is None
    cached.seen(second)
    changed = job("digits", version="3")
    changed["metadata"]["generation"] = 2
    changed["spec"]["nodes"] = 5
    stream.event(json.dumps({"type": "MODIFIED", "object": changed}).encode())
    third = stream.take("uid-digits")
    assert third is not None
    assert third.spec is not None
    assert third.spec.nodes == 5


def test_a_finished_job_that_has_not_been_taken_yet_keeps_who_changed_it() -> None:
    stream = JobStream()
    changed = job("digits", version="2", status={**FINISHED, "observedGeneration": 1})
    changed["metadata"] |= {"generation": 2, "managedFields": [written_by("bob", 2)]}
    changed["spec"]["nodes"] = 5
    first = job("digits", status={**FINISHED, "observedGeneration": 1})
    first["metadata"]["managedFields"] = [written_by("alice", 1)]
    labelled = {**changed, "metadata": {**changed["metadata"], "resourceVersion": "3"}}
    for each in (first, changed, labelled):
        stream.event(json.dumps({"type": "MODIFIED", "object": each}).encode())
    record = stream.take("uid-digits")
    assert isinstance(record, RestingJob)
    assert record.change == SpecChange(("bob",), ("spec.nodes",))


def written_by(program: str, second: int) -> dict[str, Any]:
    return {"manager": program, "time": f"2026-01-01T00:00:0{second}Z", "fieldsV1": {"f:spec": {}}}


@pytest.mark.parametrize("field", ["uid", "name", "namespace"])
def test_lists_in_place_of_names_end_no_watch(field: str) -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert JobStream().identity({"metadata": {**job("digits")["metadata"], field: deep}}) == {"metadata": {}}
