"""What a controller keeps of a job follows what happens in its caches."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from world import spec_of

from ddpjob.local.kube import LocalKube, Objects
from ddpjob.local.metrics import NoMetrics
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.status import DDPJobStatus, Progress
from ddpjob_core.engine.controller import Controller, Rates
from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.protocols import Json, SshKey
from ddpjob_core.engine.resting import RestingJob
from ddpjob_core.observations.observe import terminated
from ddpjob_core.observations.observed import JobRecord, PodRecord
from ddpjob_core.wire.progress import PollTarget, ProgressReport
from ddpjob_core.wire.rank_report import RankReport

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobRecord("default", "digits", "job-uid", "1", 1, deleting=False, spec=None)


class NoKubelet:
    def admit(self, pod: Json) -> None:
        raise AssertionError(pod)

    def stop(self, pod: Json, grace_seconds: int) -> None:
        raise AssertionError((pod, grace_seconds))


@pytest.fixture
async def controller() -> Controller:
    def now() -> datetime:
        return NOW

    return Controller(
        LocalKube(Objects(now=now, new_uid=lambda: "uid"), NoKubelet(), now=now),
        metrics=NoMetrics(),
        open_transport=open_transport,
        new_ssh_key=lambda: SshKey("private", "public"),
        now=now,
        call_later=asyncio.get_running_loop().call_later,
        instance="test",
        rates=Rates(),
    )


def pod(version: int, *, owner: str | None = "job-uid") -> PodRecord:
    ended = terminated(143, '{"exitCode": 143, "progress": {"step": 7}}', reason="Error", finished_at=NOW)
    return PodRecord("default", "digits-a0-0", "pod-uid", str(version), owner, "digits", 0, 0, "Failed", trainer=ended)


async def test_all_that_is_known_of_a_job_is_forgotten_when_it_is_gone(controller: Controller) -> None:
    controller.caches.jobs.seen(JOB)
    controller.caches.pods.seen(pod(2))
    controller.caches.pods.deleted(pod(3))
    memory = controller.memories.get("job-uid")
    assert memory is not None
    assert memory.key == ("default", "digits")
    assert [pod.name for pod in memory.vanished.pods] == ["digits-a0-0"]
    assert memory.polled.report is not None
    assert memory.polled.report.progress.step == 7
    controller.caches.jobs.deleted(replace(JOB, resource_version="4"))
    assert controller.memories.get("job-uid") is None
    # What comes late does not begin it again.
    controller.caches.pods.seen(replace(pod(5), uid="another"))
    assert controller.memories.get("job-uid") is None


async def test_a_job_of_the_same_name_begins_with_nothing_known(controller: Controller) -> None:
    controller.caches.jobs.seen(JOB)
    controller.caches.pods.seen(pod(2))
    controller.caches.pods.deleted(pod(3))
    controller.caches.jobs.seen(replace(JOB, uid="newer", resource_version="4"))
    assert controller.memories.get("job-uid") is None
    newer = controller.memories.get("newer")
    assert newer is not None
    assert newer.vanished.pods == ()


async def test_nothing_is_kept_of_a_pod_that_belongs_to_no_job(controller: Controller) -> None:
    controller.caches.jobs.seen(JOB)
    controller.caches.pods.seen(pod(2, owner=None))
    controller.caches.pods.deleted(pod(3, owner=None))
    memory = controller.memories.get("job-uid")
    assert memory is not None
    assert memory.vanished.pods == ()
    assert memory.polled.report is None


async def test_a_pod_of_another_namespace_that_names_the_job_as_its_controller_tells_nothing(
    controller: Controller,
) -> None:
    controller.caches.jobs.seen(JOB)
    forged = replace(pod(2), namespace="elsewhere")
    controller.caches.pods.seen(forged)
    controller.caches.pods.deleted(replace(forged, resource_version="3"))
    memory = controller.memories.get("job-uid")
    assert memory is not None
    assert memory.vanished.pods == ()
    assert memory.polled.report is None


async def test_on_standby_a_controller_does_nothing_and_when_it_takes_over_it_looks_at_every_job(
    controller: Controller,
) -> None:
    controller.caches.jobs.seen(JOB)
    memory = controller.memories.of("job-uid", ("default", "digits"))
    controller.poller.follow(memory, (PollTarget(0, "10.0.0.1", 9401),))
    memory.known[ObjectName("ConfigMap", "digits-launcher")] = NOW
    memory.taken_over = memory.last_status_write = NOW
    controller.stand_by()
    controller.caches.pods.seen(pod(2))
    controller.caches.jobs.seen(replace(JOB, name="other", uid="other"))
    assert (controller.queue.depth, controller.memories.followed) == (0, 0)
    controller.take_over()
    assert controller.queue.depth == 2
    assert memory.known == {}, "another process may have deleted it since"
    assert (memory.taken_over, memory.last_status_write) == (None, None), "what it wrote has the times of its clock"
    assert memory.inherited
    controller.caches.jobs.seen(replace(JOB, name="later", uid="later"))
    assert not controller.memories.of("later", ("default", "later")).inherited, "no other process has decided about it"
    controller.caches.jobs.seen(replace(JOB, name="missed", uid="missed", status=DDPJobStatus()))
    assert controller.memories.of("missed", ("default", "missed")).inherited
    ended = DDPJobStatus(completion_time=NOW)
    resting = RestingJob(replace(JOB, name="rests", uid="rests"), spec_of(), ended)
    controller.caches.jobs.seen(resting)
    assert controller.memories.of("rests", ("default", "rests")).inherited, "its status is only packed"


async def test_a_controller_that_takes_over_once_more_has_forgotten_what_it_read_in_its_former_term(
    controller: Controller,
) -> None:
    controller.caches.jobs.seen(JOB)
    memory = controller.memories.of("job-uid", ("default", "digits"))
    memory.polled.report = ProgressReport(0, Progress(step=3, process_restarts=1))
    memory.polled.ranks[0] = RankReport(0, 0, 0, NOW, step=3)
    controller.stand_by()
    controller.take_over()
    assert (memory.polled.report, memory.polled.ranks) == (None, {})
