"""What the reconciler does with a plan and with the answers to it; what an API server decides is tested against one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from reconciling import EVENT, KEY, SHARED, STATUS, Bench, manifest, pod_of, pods

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    WebhookFailed,
)
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.resources import PODS, SERVICES
from ddpjob_core.api.status import Condition, ConditionType
from ddpjob_core.decide import Plan
from ddpjob_core.engine.limiter import Turn
from ddpjob_core.observations.observed import JobRecord, RejectionKind, ServiceRecord
from ddpjob_core.wire.rank_report import RankReport


async def test_the_status_is_written_before_anything_is_done_and_events_are_posted_afterwards(bench: Bench) -> None:
    requests = await bench.look(Plan(status=STATUS, urgent=True, actions=(*pods(1), *SHARED), events=(EVENT,)))
    assert requests == [
        "status at 7",
        "create services digits",
        "create configmaps digits-launcher",
        "create pods digits-a0-0",
        "create events",
    ]


async def test_an_empty_plan_sends_no_request(bench: Bench) -> None:
    assert await bench.look(Plan()) == []
    assert not bench.looks_again()


async def test_the_next_look_sees_what_was_done_without_waiting_for_the_watch(bench: Bench) -> None:
    await bench.look(Plan(status=STATUS, urgent=True, actions=(*SHARED, *pods(3))))
    assert bench.looks_again()
    await bench.look()
    seen = bench.observed[-1]
    assert [pod.name for pod in seen.pods] == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]
    assert seen.service is not None
    assert set(seen.known) == {ObjectName("ConfigMap", "digits-launcher")}
    assert seen.job.status == STATUS
    assert seen.last_status_write == bench.now
    assert not bench.looks_again()


async def test_nothing_is_done_on_a_status_that_was_refused_as_outdated(bench: Bench) -> None:
    bench.kube.failures["status at 7"] = Conflict("changed")
    plan = Plan(status=STATUS, urgent=True, actions=pods(1), events=(EVENT,))
    assert await bench.look(plan) == ["status at 7"]
    assert not bench.looks_again()
    assert bench.delays[-1][0] == pytest.approx(5.0)


async def test_an_outdated_status_is_decided_again_immediately_where_the_newer_version_is_known(bench: Bench) -> None:
    bench.kube.before_status = lambda: bench.job(version="8")
    bench.kube.failures["status at 7"] = Conflict("changed")
    await bench.look(Plan(status=STATUS, urgent=True))
    assert bench.looks_again()
    assert bench.metrics.conflicts._value.get() == 1


async def test_a_job_that_is_gone_is_forgotten_when_its_status_cannot_be_written(bench: Bench) -> None:
    bench.kube.failures["status at 7"] = NotFound("gone")
    assert await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1))) == ["status at 7"]
    assert bench.caches.jobs.get(*KEY) is None


async def test_a_bug_in_a_decision_is_met_by_that_job_alone_and_retried_later(bench: Bench) -> None:
    assert await bench.look(ZeroDivisionError()) == []
    assert bench.metrics.errors._value.get() == 1
    assert len(bench.delays) == 1
    assert await bench.look(Plan(status=STATUS, urgent=True)) == ["status at 7"]


async def test_a_bug_that_reports_meet_is_decided_without_them(bench: Bench) -> None:
    memory = bench.reconciler._memories.of("job-uid", KEY)
    memory.polled.ranks[0] = RankReport(0, 0, 0, bench.now, seconds_since_step=1.0)
    assert await bench.look(OverflowError(), Plan(status=STATUS, urgent=True)) == ["status at 7"]
    assert [len(each.ranks) for each in bench.observed] == [1, 0]
    assert bench.metrics.errors._value.get() == 1
    assert await bench.look(OverflowError(), OverflowError()) == []
    assert bench.metrics.errors._value.get() == 2


async def test_what_the_server_asks_to_wait_is_waited(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = Unavailable("busy", after=9.0)
    await bench.look(Plan(actions=pods(1), events=(EVENT,)))
    assert bench.delays[-1][0] >= 9.0
    # decide will not ask for the event again: the change that it reports has been written.
    assert bench.kube.requests[-1] == "create events"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Invalid("spec.x: bad"), RejectionKind.INVALID),
        (Forbidden("quota"), RejectionKind.FORBIDDEN),
        (WebhookFailed('failed calling webhook "w"'), RejectionKind.UNAVAILABLE),
    ],
)
async def test_a_refusal_stops_the_other_pods_and_is_observed_by_the_next_decision(
    bench: Bench, failure: ApiError, kind: RejectionKind
) -> None:
    bench.kube.failures["create pods digits-a0-1"] = failure
    requests = await bench.look(Plan(actions=pods(100)))
    assert len(requests) == 2  # those behind it are never asked for
    assert bench.looks_again()
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert (rejection.kind, rejection.object, rejection.message) == (
        kind,
        ObjectName("Pod", "digits-a0-1"),
        str(failure),
    )


async def test_a_creation_that_fails_for_seconds_is_reported_and_not_given_up(bench: Bench) -> None:
    plan = Plan(actions=pods(1))
    for second in range(10):
        # Each failure comes in words of its own.
        bench.kube.failures["create pods digits-a0-0"] = Unavailable(f"connection {second} was reset")
        assert await bench.look(plan) == ["create pods digits-a0-0"], "it may work again at any moment"
        told = bench.looks_again()
        assert told == (second == 4), "only what lasts is news, and only once"
        bench.now += timedelta(seconds=1)
    [rejection] = bench.observed[-1].rejections
    assert (rejection.kind, rejection.message) == (RejectionKind.UNAVAILABLE, "connection 4 was reset")
    bench.kube.failures.clear()
    await bench.look(plan)
    await bench.look()
    assert bench.observed[-1].rejections == ()


async def test_a_failure_that_passes_is_not_reported(bench: Bench) -> None:
    for _ in range(3):
        bench.kube.failures["create pods digits-a0-0"] = Unavailable("busy")
        await bench.look(Plan(actions=pods(1)))
        bench.now += timedelta(seconds=3)
        bench.kube.failures.clear()
        await bench.look(Plan(actions=pods(1)))
        assert bench.observed[-1].rejections == ()
        [pod] = bench.caches.pods
        bench.caches.pods.forget("default", "digits-a0-0", pod.uid)


async def test_what_was_refused_is_left_alone_for_a_while_and_forgotten_once_it_succeeds(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = Forbidden("quota")
    plan = Plan(actions=pods(1), requeue_after=timedelta(seconds=10))
    assert await bench.look(plan) == ["create pods digits-a0-0"]
    assert bench.looks_again()
    assert await bench.look(plan) == []
    assert not bench.looks_again()
    bench.now += timedelta(seconds=10)
    assert await bench.look(plan) == ["create pods digits-a0-0"]
    assert not bench.looks_again()
    bench.now += timedelta(seconds=10)
    bench.kube.failures.clear()
    assert await bench.look(plan) == ["create pods digits-a0-0"]
    await bench.look()
    assert bench.observed[-1].rejections == ()


async def test_refusals_of_an_attempt_are_forgotten_with_it(bench: Bench) -> None:
    bench.job(version="8", status=DDPJobStatus(attempt=0))
    bench.kube.failures["create pods digits-a0-0"] = Forbidden("quota")
    await bench.look(Plan(actions=pods(1)))
    bench.job(version="9", status=DDPJobStatus(attempt=0, replicas=1))
    await bench.look()
    assert bench.observed[-1].rejections
    bench.job(version="10", status=DDPJobStatus(attempt=1))
    await bench.look()
    assert bench.observed[-1].rejections == ()


async def test_a_refusal_is_forgotten_once_the_object_exists(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = Forbidden("quota")
    await bench.look(Plan(actions=pods(1)))
    # The next try succeeds, but its answer is lost: only the watch shows the object.
    bench.caches.pods.seen(pod_of("digits-a0-0", owner="job-uid"))
    await bench.look()
    assert bench.observed[-1].rejections == ()


async def test_progress_waits_for_its_turn_and_a_transition_does_not() -> None:
    bench = Bench(progress_rate=1.0)
    for _ in range(3):
        bench.reconciler._progress_writes.ask(Turn(), "default")
    assert await bench.look(Plan(status=STATUS, events=(EVENT,))) == []
    wait = bench.delays[-1][0]
    assert wait > 0
    assert await bench.look(Plan(status=STATUS, urgent=True)) == ["status at 7"]
    assert await bench.look(Plan(status=STATUS)) == []
    bench.monotonic += 10
    assert len(await bench.look(Plan(status=STATUS))) == 1


async def test_an_event_that_cannot_be_posted_is_dropped_and_delays_nothing(bench: Bench) -> None:
    bench.kube.failures["create events"] = Forbidden("no")
    assert await bench.look(Plan(status=STATUS, urgent=True, events=(EVENT,))) == ["status at 7", "create events"]
    assert bench.looks_again()
    assert bench.delays == []


async def test_children_of_an_older_job_of_the_same_name_are_seen_as_foreign(bench: Bench) -> None:
    older = [{"uid": "older", "controller": True}]
    for resource, name in ((PODS, "digits-a0-0"), (SERVICES, "digits")):
        bench.kube.objects[f"find {resource.plural} {name}"] = manifest(name, uid=f"{name}-uid", ownerReferences=older)
    bench.caches.pods.seen(pod_of("digits-a0-0", owner="older"))
    bench.caches.services.seen(ServiceRecord("default", "digits", "s", "1", "older", "digits"))
    await bench.look()
    seen = bench.observed[-1]
    assert (seen.pods, seen.service) == ((), None)
    assert seen.foreign == {
        ObjectName("Pod", "digits-a0-0"): "DDPJob digits (uid older)",
        ObjectName("Service", "digits"): "DDPJob digits (uid older)",
    }


async def test_a_job_that_another_process_led_counts_as_inherited_until_a_status_of_it_is_accepted(
    bench: Bench,
) -> None:
    bench.memory.inherited = True
    bench.kube.failures["status at 7"] = Conflict("changed")
    await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1)))
    bench.kube.failures.clear()
    await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1)))
    await bench.look()
    assert [seen.inherited for seen in bench.observed] == [True, True, False]


class Term:
    """The term of a leader: it writes over older ones, and nothing over a newer one."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def epoch_over(self, written: int | None) -> int:
        if written is not None and written > self.epoch:
            raise NotLeading("another process leads")
        return self.epoch


async def test_a_status_carries_the_term_in_which_it_is_written() -> None:
    bench = Bench(leadership=Term(5))
    bench.job(version="8", status=DDPJobStatus(leader_epoch=4))
    assert await bench.look(Plan(status=DDPJobStatus(leader_epoch=4), urgent=True)) == ["status at 8"]
    job = bench.caches.jobs.get(*KEY)
    assert job is not None
    assert job.status is not None
    assert job.status.leader_epoch == 5


async def test_a_former_leader_writes_and_does_nothing_to_a_job_of_its_successor() -> None:
    bench = Bench(leadership=Term(5))
    bench.job(version="8", status=DDPJobStatus(leader_epoch=6))
    plan = Plan(status=STATUS, urgent=True, actions=(*SHARED, *pods(2)), events=(EVENT,))
    assert await bench.look(plan) == []
    assert bench.delays


async def look_for_an_hour(bench: Bench, plans: Callable[[], tuple[Plan, ...]]) -> list[float]:
    """When the job was looked at, by a worker that is always free and a watch that shows something every second."""
    begun, looks = bench.monotonic, []
    while bench.monotonic < begun + 3600:
        bench.queue.add(KEY)
        if bench.queue.depth:
            await bench.queue._take()
            bench.queue._done(KEY)
            looks.append(bench.monotonic - begun)
            for plan in plans():
                pod = next(iter(bench.caches.pods), None)
                bench.caches.pods.forget("default", "digits-a0-0", "" if pod is None else pod.uid)
                await bench.look(plan)
        bench.monotonic += 1.0 if bench.queue.depth == 0 else 0.01
    return looks


async def test_a_job_that_never_comes_to_rest_is_left_alone_for_longer_and_longer(bench: Bench) -> None:
    looks = await look_for_an_hour(bench, lambda: (Plan(actions=pods(1)),))
    assert 16 <= len([at for at in looks if at < 10]) <= 32
    assert len([at for at in looks if at > 600]) <= 60


async def test_a_job_whose_pod_a_neighbour_deletes_again_and_again_is_made_no_faster_than_every_two_seconds(
    bench: Bench,
) -> None:
    looks = await look_for_an_hour(bench, lambda: (Plan(actions=pods(1)), Plan()))
    assert len([at for at in looks if at > 600]) <= 3000 / 2 + 10


async def test_what_a_user_changes_is_looked_at_although_the_job_is_left_alone(bench: Bench) -> None:
    bench.queue.hold(KEY, 60)
    bench.queue.add(KEY)
    assert not bench.looks_again()
    bench.queue.hold(KEY, 60)
    bench.queue.release(KEY)
    bench.queue.add(KEY)
    assert bench.looks_again()


REMARK = Condition(
    type=ConditionType.UNREADABLE,
    status="True",
    last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
    reason="UnknownSpec",
    message="spec.elastic",
)


async def test_a_remark_leaves_the_rest_of_a_status_as_it_was(bench: Bench) -> None:
    others = [{"type": "Queued", "status": "True"}, {"type": "Unreadable", "status": "False"}]
    raw = {"phase": "Queued", "lease": {"holder": "x"}, "conditions": others}
    record = JobRecord("default", "digits", "job-uid", "8", 1, deleting=False, spec=None, raw_status=raw)
    bench.caches.jobs.seen(record)
    assert await bench.look(Plan(remark=REMARK, events=(EVENT,))) == ["status at 8", "create events"]
    assert bench.kube.written == [{**raw, "conditions": [others[0], REMARK.to_wire()]}]


async def test_a_remark_on_a_job_that_has_changed_is_decided_again(bench: Bench) -> None:
    bench.kube.failures["status at 7"] = Conflict("changed")
    assert await bench.look(Plan(remark=REMARK, events=(EVENT,))) == ["status at 7"]
    assert bench.delays
