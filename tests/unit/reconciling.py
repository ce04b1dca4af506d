"""A reconciler whose plans a test writes, over a script of answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ddpjob_core.api import DDPJobSpec, DDPJobStatus
from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.names import pod_name
from ddpjob_core.api.resources import JOBS, PODS, Resource
from ddpjob_core.children.actions import Action, Create, CreatePod
from ddpjob_core.decide import Plan
from ddpjob_core.engine.caches import Caches, groups_of
from ddpjob_core.engine.events import EventPoster
from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.limiter import FairLimiter
from ddpjob_core.engine.memory import Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.engine.protocols import Alone, Json, Leadership
from ddpjob_core.engine.queue import WorkQueue
from ddpjob_core.engine.reconcile import Reconciler
from ddpjob_core.engine.store import Key, Store
from ddpjob_core.observations.observed import JobRecord, Observed, PodRecord, ServiceRecord
from ddpjob_core.status.events import Event
from ddpjob_operator.kube_protocols import Page
from ddpjob_operator.metrics import Metrics
from ddpjob_operator.ssh_keys import new_ssh_key
from ddpjob_operator.watch_lines import WatchEvent

KEY = ("default", "digits")
SPEC = {"nodes": 10, "trainer": {"image": "i", "script": "t.py"}}


class Answers:
    """A script of answers, no API server: it keeps nothing and decides nothing."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.written: list[Json] = []
        self.failures: dict[str, ApiError] = {}
        self.objects: dict[str, Json] = {}
        self.version = 100
        self.before_status: Callable[[], object] = lambda: None
        self.refuse_status: Callable[[Json], ApiError | None] = lambda _: None
        self.mutate: Callable[[Json], Json] = lambda raw: raw
        self.before_create: Callable[[str], object] = lambda _: None

    def _answer(self, request: str, raw: Json) -> Json:
        self.requests.append(request)
        if request in self.failures:
            raise self.failures[request]
        self.version += 1
        raw = self.mutate(raw)
        metadata = {"uid": f"uid-{self.version}", **raw["metadata"], "resourceVersion": str(self.version)}
        return {**raw, "metadata": metadata}

    async def create(self, resource: Resource, manifest: Json, *, strict: bool = False) -> Json:
        assert strict == (resource is PODS)
        self.before_create(str(manifest["metadata"].get("name", "")))
        return self._answer(f"create {resource.plural} {manifest['metadata'].get('name', '')}".strip(), manifest)

    async def get(self, resource: Resource, _: str, name: str) -> Json:
        return self._read(f"get {resource.plural} {name}", name)

    async def find(self, resource: Resource, _: str, name: str) -> Json:
        return self._read(f"find {resource.plural} {name}", name)

    def _read(self, request: str, name: str) -> Json:
        if request not in self.objects:
            self.requests.append(request)
            raise NotFound(name)
        return self._answer(request, self.objects[request])

    async def replace(self, resource: Resource, manifest: Json) -> Json:
        metadata = manifest["metadata"]
        return self._answer(f"replace {resource.plural} {metadata['name']} at {metadata['resourceVersion']}", manifest)

    async def replace_status(self, resource: Resource, manifest: Json) -> Json:
        assert resource is JOBS
        assert manifest["metadata"]["uid"]
        self.before_status()
        self.written.append(manifest["status"])
        refusal = self.refuse_status(manifest["status"])
        if refusal is not None:
            self.requests.append("refused status")
            raise refusal
        answer = self._answer(f"status at {manifest['metadata']['resourceVersion']}", manifest)
        return {**answer, "metadata": {"generation": 1, **answer["metadata"]}, "spec": SPEC}

    async def patch(self, resource: Resource, namespace: str, name: str, change: Json) -> Json:
        return self._answer(
            f"patch {resource.plural} {name}", {"metadata": {"namespace": namespace, **change["metadata"]}}
        )

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str, resource_version: str = "", **_: int | None
    ) -> Json:
        raw = {"kind": "Status", "metadata": {"namespace": namespace}}
        version = f" at {resource_version}" if resource_version else ""
        return self._answer(f"delete {resource.plural} {name} {uid}{version}", raw)

    def list_pages(self, *_: object, **__: object) -> AsyncGenerator[Page[Any], None]:
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
    leadership: Leadership = field(default_factory=Alone)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.caches: Caches = Caches(
            jobs=Store[JobRecord](),
            pods=Store[PodRecord](groups=groups_of),
            services=Store[ServiceRecord](groups=groups_of),
        )
        self.queue: WorkQueue[Key] = WorkQueue(clock=lambda: self.monotonic, call_later=self._call_later)
        memories = Memories()
        self.memory = memories.of("job-uid", KEY)
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
                drop=lambda _: None,
                open_transport=open_transport,
                now=lambda: self.now,
            ),
            progress_writes=FairLimiter(self.progress_rate, clock=lambda: self.monotonic),
            events=EventPoster(self.kube, now=lambda: self.now, instance="test"),
            metrics=self.metrics,
            new_ssh_key=new_ssh_key,
            now=lambda: self.now,
            leadership=self.leadership,
            clock=lambda: self.monotonic,
        )
        self.job(version="7")

    def job(
        self,
        *,
        version: str,
        status: DDPJobStatus | None = None,
        uid: str = "job-uid",
        generation: int = 1,
        deleting: bool = False,
        **spec_fields: object,
    ) -> None:
        spec = DDPJobSpec.model_validate({**SPEC, **spec_fields})
        record = JobRecord("default", "digits", uid, version, generation, deleting=deleting, spec=spec, status=status)
        self.caches.jobs.seen(record)

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


def pods(count: int, *, nodes: int = 10) -> tuple[Action, ...]:
    return tuple(CreatePod(pod_name("digits", 0, ordinal, nodes), 0, ordinal) for ordinal in range(count))


SHARED = (Create(manifest("digits", "Service")), Create(manifest("digits-launcher", "ConfigMap")))
STATUS = DDPJobStatus()
EVENT = Event("Normal", "PodsCreated", "created")


def pod_of(name: str, *, owner: str) -> PodRecord:
    return PodRecord("default", name, f"{name}-uid", "1", owner, "digits", 0, 0, "Running")
