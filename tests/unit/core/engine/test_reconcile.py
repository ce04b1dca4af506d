"""What the reconciler does with a plan and with the answers to it; what an API server decides is tested against one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.resources import JOBS, PODS, SERVICES, Resource
from ddpjob_core.children.actions import Action, Create, DeleteJob, DeletePod, DeleteStray
from ddpjob_core.decide import Plan
from ddpjob_core.engine.caches import Caches, groups_of
from ddpjob_core.engine.events import EventPoster
from ddpjob_core.engine.limiter import FairLimiter, Turn
from ddpjob_core.engine.memory import Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.queue import WorkQueue
from ddpjob_core.engine.reconcile import Reconciler
from ddpjob_core.engine.store import Key, Store
from ddpjob_core.observations.observed import JobRecord, Observed, PodRecord, RejectionKind, ServiceRecord
from ddpjob_core.status.events import Event
from ddpjob_operator.kube import Page, WatchEvent
from ddpjob_operator.metrics import Metrics
from ddpjob_operator.ssh_keys import new_ssh_key
from ddpjob_operator.transport import open_transport

KEY = ("default", "digits")


class Answers:
    """A script of answers, no API server: it keeps nothing and decides nothing."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.failures: dict[str, ApiError] = {}
        self.objects: dict[str, Json] = {}
        self.version = 100
        self.before_status: Callable[[], object] = lambda: None

    def _answer(self, request: str, raw: Json) -> Json:
        self.requests.append(request)
        if request in self.failures:
            raise self.failures[request]
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", **raw["metadata"], "resourceVersion": str(self.version)}
        return {**raw, "metadata": metadata}

    async def create(self, resource: Resource, manifest: Json, *, strict: bool = False) -> Json:
        assert strict == (resource is PODS)
        return self._answer(f"create {resource.plural} {manifest['metadata'].get('name', '')}".strip(), manifest)

    async def get(self, resource: Resource, _: str, name: str) -> Json:
        request = f"get {resource.plural} {name}"
        if request not in self.objects:
            self.requests.append(request)
            raise NotFound(name)
        return self._answer(request, self.objects[request])

    async def replace_status(self, resource: Resource, manifest: Json) -> Json:
        assert resource is JOBS
        assert manifest["metadata"]["uid"]
        self.before_status()
        return self._answer(f"status at {manifest['metadata']['resourceVersion']}", manifest)

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str, **_: int | None) -> Json:
        raw = {"kind": "Status", "metadata": {"namespace": namespace}}
        return self._answer(f"delete {resource.plural} {name} {uid}", raw)

    def list_pages(self, *_: object, **__: object) -> AsyncGenerator[Page, None]:
        raise AssertionError("a reconcile lists nothing")

    def watch(self, *_: object, **__: object) -> AsyncGenerator[WatchEvent, None]:
        raise AssertionError("a reconcile watches nothing")


@dataclass
class Bench:
    """A reconciler whose plans the test writes."""

    kube: Answers = field(default_factory=Answers)
    plans: list[Plan | Exception] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    delays: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    monotonic: float = 0.0
    progress_rate: float = 50.0

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.caches: Caches = Caches(
            jobs=Store[JobRecord](),
            pods=Store[PodRecord](groups=groups_of),
            services=Store[ServiceRecord](groups=groups_of),
        )
        self.queue: WorkQueue[Key] = WorkQueue(clock=lambda: self.monotonic, call_later=self._call_later)
        memories = Memories()
        self.reconciler = Reconciler(
            kube=self.kube,
            decide=self._decide,
            memories=memories,
            caches=self.caches,
            queue=self.queue,
            poller=ProgressPoller(
                memories=memories,
                changed=self.queue.add,
                count=lambda _: None,
                open_transport=open_transport,
                now=lambda: self.now,
            ),
            progress_writes=FairLimiter(self.progress_rate, clock=lambda: self.monotonic),
            events=EventPoster(self.kube, now=lambda: self.now, instance="test"),
            metrics=self.metrics,
            new_ssh_key=new_ssh_key,
            now=lambda: self.now,
        )
        self.job(version="7")

    def job(self, *, version: str, status: DDPJobStatus | None = None, uid: str = "job-uid") -> None:
        self.caches.jobs.seen(JobRecord("default", "digits", uid, version, 1, deleting=False, spec=None, status=status))

    async def look(self, *plans: Plan | Exception) -> list[str]:
        """Reconcile once; the requests that it made."""
        self.plans += plans
        before = len(self.kube.requests)
        await self.reconciler.reconcile(KEY)
        return self.kube.requests[before:]

    def looks_again(self) -> bool:
        """Whether the job is in the queue right now; it is taken out."""
        waits = bool(self.queue.depth)
        self.queue = self.reconciler._queue = WorkQueue(clock=lambda: self.monotonic, call_later=self._call_later)
        return waits

    def _decide(self, observed: Observed) -> Plan:
        self.observed.append(observed)
        plan = self.plans.pop(0) if self.plans else Plan()
        if isinstance(plan, Exception):
            raise plan
        return plan

    def _call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.delays.append((seconds, call))
        return asyncio.get_running_loop().call_later(10_000, call)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


def manifest(name: str, kind: str = "Pod", **metadata: Any) -> Json:
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app.kubernetes.io/managed-by": "ddpjob", "ddpjob.dev/job": "digits"},
            "ownerReferences": [{"uid": "job-uid", "controller": True, "kind": "DDPJob", "name": "digits"}],
            **metadata,
        },
    }


def pods(count: int) -> tuple[Action, ...]:
    return tuple(Create(manifest(f"digits-a0-{ordinal}")) for ordinal in range(count))


SHARED = (Create(manifest("digits", "Service")), Create(manifest("digits-launcher", "ConfigMap")))
STATUS = DDPJobStatus()
EVENT = Event("Normal", "PodsCreated", "created")


async def test_the_status_is_written_before_anything_is_done_and_told_afterwards(bench: Bench) -> None:
    requests = await bench.look(Plan(status=STATUS, urgent=True, actions=(*pods(1), *SHARED), events=(EVENT,)))
    assert requests == [
        "status at 7",
        "create services digits",
        "create configmaps digits-launcher",
        "create pods digits-a0-0",
        "create events",
    ]


async def test_a_plan_with_nothing_in_it_asks_nothing_of_the_server(bench: Bench) -> None:
    assert await bench.look(Plan()) == []
    assert not bench.looks_again()


async def test_the_next_look_sees_what_was_done_without_waiting_for_the_watch(bench: Bench) -> None:
    await bench.look(Plan(status=STATUS, urgent=True, actions=(*SHARED, *pods(3))))
    assert bench.looks_again()
    await bench.look()
    seen = bench.observed[-1]
    assert [pod.name for pod in seen.pods] == ["digits-a0-0", "digits-a0-1", "digits-a0-2"]
    assert seen.service is not None
    assert seen.known == {ObjectName("ConfigMap", "digits-launcher")}
    assert seen.job.status == STATUS
    assert seen.last_status_write == bench.now
    assert not bench.looks_again()


async def test_nothing_is_done_on_a_status_that_was_refused_as_outdated(bench: Bench) -> None:
    bench.kube.failures["status at 7"] = Conflict("changed")
    plan = Plan(status=STATUS, urgent=True, actions=pods(1), events=(EVENT,))
    assert await bench.look(plan) == ["status at 7"]
    assert not bench.looks_again()
    assert bench.delays[-1][0] == pytest.approx(5.0)


async def test_an_outdated_status_is_decided_anew_at_once_where_the_newer_version_is_known(bench: Bench) -> None:
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


async def test_what_the_server_asks_to_wait_is_waited(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = Unavailable("busy", after=9.0)
    await bench.look(Plan(actions=pods(1), events=(EVENT,)))
    assert bench.delays[-1][0] >= 9.0
    # decide will not ask for the event again: the change that it tells of has been written.
    assert bench.kube.requests[-1] == "create events"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(Invalid("spec.x: bad"), RejectionKind.INVALID), (Forbidden("quota"), RejectionKind.FORBIDDEN)],
)
async def test_a_refusal_stops_the_other_pods_and_is_told_to_the_next_decision(
    bench: Bench, failure: ApiError, kind: RejectionKind
) -> None:
    bench.kube.failures["create pods digits-a0-1"] = failure
    requests = await bench.look(Plan(actions=pods(100)))
    assert len(requests) == 3  # one, then two: the rest of a growing number is never asked for
    assert bench.looks_again()
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert (rejection.kind, rejection.object, rejection.message) == (
        kind,
        ObjectName("Pod", "digits-a0-1"),
        str(failure),
    )


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


async def test_a_refusal_is_forgotten_once_the_object_is_there_by_whatever_way(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = Forbidden("quota")
    await bench.look(Plan(actions=pods(1)))
    # The next try is granted, but its answer is lost: only the watch tells.
    bench.caches.pods.seen(pod_of("digits-a0-0", owner="job-uid"))
    await bench.look()
    assert bench.observed[-1].rejections == ()


async def test_a_pod_that_a_dead_process_had_made_counts_as_made(bench: Bench) -> None:
    bench.kube.failures["create pods digits-a0-0"] = AlreadyExists("there")
    bench.kube.objects["get pods digits-a0-0"] = manifest("digits-a0-0", uid="p")
    assert await bench.look(Plan(actions=pods(1))) == ["create pods digits-a0-0", "get pods digits-a0-0"]
    await bench.look()
    assert [pod.uid for pod in bench.observed[-1].pods] == ["p"]


@pytest.mark.parametrize("resource", ["pods", "services", "configmaps"])
async def test_a_name_that_another_holds_is_told_with_its_holder(bench: Bench, resource: str) -> None:
    actions: dict[str, Action] = {
        "pods": Create(manifest("x")),
        "services": Create(manifest("x", "Service")),
        "configmaps": Create(manifest("x", "ConfigMap")),
    }
    bench.kube.failures[f"create {resource} x"] = AlreadyExists("there")
    others = [{"uid": "other", "controller": True, "kind": "Deployment", "name": "web"}]
    bench.kube.objects[f"get {resource} x"] = manifest("x", uid="p", ownerReferences=others)
    await bench.look(Plan(actions=(actions[resource],)))
    await bench.look()
    [rejection] = bench.observed[-1].rejections
    assert rejection.kind is RejectionKind.NAME_TAKEN
    assert "Deployment web (uid other)" in rejection.message


async def test_a_key_that_a_dead_process_had_made_counts_as_made_and_is_not_looked_at(bench: Bench) -> None:
    key = Create(manifest("digits-ssh", "Secret"))
    bench.kube.failures["create secrets digits-ssh"] = AlreadyExists("there")
    assert await bench.look(Plan(actions=(key,))) == ["create secrets digits-ssh"]
    await bench.look()
    assert bench.observed[-1].known == {ObjectName("Secret", "digits-ssh")}
    assert not bench.observed[-1].rejections


def test_every_key_is_another_one_in_the_form_that_ssh_reads() -> None:
    one, other = new_ssh_key(), new_ssh_key()
    assert one.private != other.private
    private = load_ssh_private_key(one.private.encode(), password=None)
    public = load_ssh_public_key(one.public.encode())
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == public


async def test_pods_wait_for_the_service_that_they_are_found_by(bench: Bench) -> None:
    bench.kube.failures["create services digits"] = Unavailable("busy")
    requests = await bench.look(Plan(actions=(*pods(2), *SHARED)))
    assert requests == ["create services digits", "create configmaps digits-launcher"]


async def test_a_pod_that_is_gone_or_replaced_counts_as_deleted(bench: Bench) -> None:
    await bench.look(Plan(actions=pods(2)))
    uids = [pod.uid for pod in bench.caches.pods]
    bench.kube.failures[f"delete pods digits-a0-0 {uids[0]}"] = NotFound("gone")
    bench.kube.failures[f"delete pods digits-a0-1 {uids[1]}"] = Conflict("another uid")
    actions = tuple(DeletePod(f"digits-a0-{ordinal}", uids[ordinal]) for ordinal in range(2))
    await bench.look(Plan(actions=actions))
    await bench.look()
    assert bench.observed[-1].pods == ()


async def test_a_stray_is_deleted_only_where_it_is_this_jobs_own(bench: Bench) -> None:
    bench.kube.objects["get pods mine"] = manifest("mine", uid="p1", labels={})
    bench.kube.objects["get pods other"] = manifest("other", uid="p2", ownerReferences=[])
    requests = await bench.look(Plan(actions=(DeleteStray("mine"), DeleteStray("other"), DeleteStray("gone"))))
    assert [request for request in requests if request.startswith("delete")] == ["delete pods mine p1"]


async def test_a_job_that_was_deleted_is_not_deleted_again(bench: Bench) -> None:
    plan = Plan(actions=(DeleteJob("job-uid"),))
    assert await bench.look(plan) == ["delete ddpjobs digits job-uid"]
    assert await bench.look(plan) == []


async def test_progress_waits_for_its_turn_and_a_transition_does_not() -> None:
    bench = Bench(progress_rate=1.0)
    for _ in range(3):
        bench.reconciler._progress_writes.ask(Turn())
    assert await bench.look(Plan(status=STATUS, events=(EVENT,))) == []
    wait = bench.delays[-1][0]
    assert wait > 0
    assert await bench.look(Plan(status=STATUS, urgent=True)) == ["status at 7"]
    assert await bench.look(Plan(status=STATUS)) == []
    bench.monotonic += 10
    assert len(await bench.look(Plan(status=STATUS))) == 1


async def test_an_event_that_cannot_be_posted_is_lost_and_holds_nothing_up(bench: Bench) -> None:
    bench.kube.failures["create events"] = Forbidden("no")
    assert await bench.look(Plan(status=STATUS, urgent=True, events=(EVENT,))) == ["status at 7", "create events"]
    assert bench.looks_again()
    assert bench.delays == []


async def test_children_of_an_older_job_of_the_same_name_are_seen_as_foreign(bench: Bench) -> None:
    older = [{"uid": "older", "controller": True}]
    for resource, name in ((PODS, "digits-a0-0"), (SERVICES, "digits")):
        bench.kube.objects[f"get {resource.plural} {name}"] = manifest(name, uid=f"{name}-uid", ownerReferences=older)
    bench.caches.pods.seen(pod_of("digits-a0-0", owner="older"))
    bench.caches.services.seen(ServiceRecord("default", "digits", "s", "1", "older", "digits"))
    await bench.look()
    seen = bench.observed[-1]
    assert (seen.pods, seen.service) == ((), None)
    assert seen.foreign == {
        ObjectName("Pod", "digits-a0-0"): "DDPJob digits (uid older)",
        ObjectName("Service", "digits"): "DDPJob digits (uid older)",
    }


async def test_a_job_that_acts_without_end_is_slowed_down(bench: Bench) -> None:
    immediate = 0
    for _ in range(40):
        bench.caches.pods.forget("default", "digits-a0-0", next((pod.uid for pod in bench.caches.pods), ""))
        await bench.look(Plan(actions=pods(1)))
        immediate += bench.looks_again()
    assert 5 < immediate < 20
    assert bench.delays


def pod_of(name: str, *, owner: str) -> PodRecord:
    return PodRecord("default", name, f"{name}-uid", "1", owner, "digits", 0, 0, "Running")
