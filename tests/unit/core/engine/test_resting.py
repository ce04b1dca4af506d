"""Jobs that have finished or are suspended take little memory and are the same when they are looked at."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from world import running_world

from ddpjob_core.api.status import ConditionType
from ddpjob_core.engine.resting import JobStore, RestingJob, at_rest, facts_about, has_status
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord


def finished_job(**fields: Any) -> JobRecord:
    world = running_world(**fields)
    for name in list(world.pods):
        world.end(name, 1 if name.endswith("0") else 0)
    world.settle()
    world.advance(600)
    world.settle()
    assert world.status is not None
    assert world.status.finished
    return world.job()


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "x": [1, None, 0.5]},
}


@pytest.mark.parametrize(
    "fields",
    [
        {"restart": {"maxRestarts": 0}},
        {"restart": {"maxRestarts": 0}, "template": TEMPLATE, "procsPerNode": "auto", "suspend": False},
        {"restart": {"maxRestarts": 0}, "ttlSecondsAfterFinished": 10**6, "checkpoint": {"size": "1Gi"}},
    ],
)
def test_a_finished_job_is_the_same_after_its_rest(fields: dict[str, Any]) -> None:
    job, store = finished_job(**fields), JobStore()
    store.seen(job)
    (kept,) = store
    assert isinstance(kept, RestingJob)
    assert kept.spec is None
    assert store.get("default", "digits") == job
    assert facts_about(kept) == facts_about(job)


def suspended_job(**fields: Any) -> JobRecord:
    world = running_world(**fields)
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    world.kubelet_removes_deleted_pods()
    world.settle()
    job = world.job()
    assert job.status is not None
    assert job.status.holds(ConditionType.SUSPENDED)
    return job


def test_a_suspended_job_rests_until_it_is_resumed() -> None:
    job, store = suspended_job(template=TEMPLATE), JobStore()
    store.seen(replace(job, resource_version="1"))
    (kept,) = store
    assert isinstance(kept, RestingJob)
    assert kept.spec is None
    assert has_status(kept)
    assert store.get("default", "digits") == replace(job, resource_version="1")
    assert facts_about(kept) == facts_about(job)
    assert job.spec is not None
    store.seen(replace(job, resource_version="2", spec=job.spec.model_copy(update={"suspend": False})))
    assert not any(isinstance(each, RestingJob) for each in store)


def test_a_job_that_is_still_stopping_is_kept_whole() -> None:
    world = running_world()
    world.spec = world.spec.model_copy(update={"suspend": True})
    world.settle()
    assert at_rest(world.job()) == world.job()


def test_what_a_job_takes_is_known_whole_and_at_rest() -> None:
    def read(status: object) -> JobRecord | None:
        spec = {"nodes": 1, "trainer": {"image": "i", "script": "t.py", "args": ["word " * 5_000] * 4}, "suspend": True}
        metadata = {"namespace": "default", "name": "digits", "uid": "u", "resourceVersion": "1", "generation": 1}
        return job_record({"metadata": metadata, "spec": spec, "status": status})

    whole = read(None)
    assert whole is not None
    assert 100_000 <= whole.size < 110_000
    status = suspended_job().status
    assert status is not None
    resting = read(status.to_wire())
    assert resting is not None
    assert 500 < at_rest(resting).size < 20_000


def test_a_job_that_runs_or_cannot_be_understood_is_kept_whole() -> None:
    store, running = JobStore(), running_world().job()
    store.seen(running)
    store.seen(replace(running, name="odd", uid="odd", spec=None, spec_error="spec.nodes: is missing"))
    assert not any(isinstance(job, RestingJob) for job in store)


def test_a_job_that_starts_again_is_whole_again() -> None:
    job, store = finished_job(restart={"maxRestarts": 0}), JobStore()
    store.seen(replace(job, resource_version="1"))
    store.seen(replace(job, resource_version="2", status=None))
    (kept,) = store
    assert kept.status is None
    assert facts_about(kept).phase == "Pending"


def test_a_finished_job_takes_less_than_four_kilobytes() -> None:
    job = finished_job(restart={"maxRestarts": 0}, template=TEMPLATE)
    tracemalloc.start()
    begun = tracemalloc.get_traced_memory()[0]
    kept = [RestingJob(job, job.spec, job.status) for _ in range(100) if job.spec and job.status]
    used = (tracemalloc.get_traced_memory()[0] - begun) / len(kept)
    tracemalloc.stop()
    assert used < 4096, used
