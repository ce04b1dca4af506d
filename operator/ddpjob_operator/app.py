"""Puts the operator together and runs it until it is asked to stop or a component fails."""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from ddpjob_core.api.constants import LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.resources import LEASES, PODS, SERVICES
from ddpjob_core.engine.clock import SteadyClock
from ddpjob_core.engine.controller import Controller, Rates
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observe import pod_record, service_record
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.connection import Connection, connect
from ddpjob_operator.election import Election, Times
from ddpjob_operator.fence import Fence
from ddpjob_operator.handlers import JobWatch
from ddpjob_operator.health import LoopMeter, problems, queue_moves, watch_is_answered, watch_moves
from ddpjob_operator.informer import Informer, WatchLimits
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.lease import LEASE_NAMESPACE, LEASE_SELECTOR, lease_record
from ddpjob_operator.metrics import Metrics, Readings
from ddpjob_operator.server import serve
from ddpjob_operator.ssh_keys import new_ssh_key
from ddpjob_operator.terms import Terms
from ddpjob_operator.transport import open_transport

_STOP_SECONDS: Final = 1.5
_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What can be configured. Durations are in seconds."""

    namespace: str | None = None
    lease_namespace: str = LEASE_NAMESPACE
    lease_duration: float = 10.0
    workers: int = 8
    port: int = 8080
    poll_interval: float = 2.0
    progress_writes: float = 50.0
    requests_in_flight: int = 50
    watch_seconds: float = 30.0
    stuck_after: float = 300.0
    ttl_seconds_after_finished: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A watched resource, whether it has been listed, and how long its watch has been silent, and idle itself."""

    resource: str
    synced: asyncio.Event
    silent_for: Callable[[], float]
    idle_for: Callable[[], float]


class Operator:
    """One operator process."""

    def __init__(self, connection: Connection, options: Options) -> None:
        """Args:
        connection: the cluster.
        options: the configuration.
        """
        loop = asyncio.get_running_loop()
        margin = max(2.0, options.watch_seconds / 3)
        limits = WatchLimits(watch=options.watch_seconds, silence=options.watch_seconds + margin)
        self._options = options
        self._connection = connection
        self._metrics = metrics = Metrics()
        fence = Fence(_clock)
        kube = KubeClient(
            connection,
            count=metrics.request,
            answered=metrics.answered,
            in_flight=options.requests_in_flight,
            guard=fence,
        )
        # A client of its own: a renewal waits for no other request, nor for what another one was asked to wait.
        times = Times.of(options.lease_duration)
        leases = KubeClient(connection, count=metrics.request, answered=metrics.answered, timeout=times.request)
        self._election = election = Election(
            leases,
            place=options.lease_namespace,
            scope=options.namespace,
            identity=_identity(),
            fence=fence,
            clock=_clock,
            times=times,
        )
        self._controller = controller = Controller(
            kube,
            metrics=metrics,
            open_transport=open_transport,
            new_ssh_key=new_ssh_key,
            now=SteadyClock(lambda: datetime.now(UTC), monotonic),
            call_later=loop.call_later,
            instance=socket.gethostname(),
            rates=Rates(options.poll_interval, options.progress_writes),
            leadership=election,
            ttl_seconds_after_finished=options.ttl_seconds_after_finished,
        )
        caches, queue = controller.caches, controller.queue
        self._pods = Informer(
            kube,
            PODS,
            caches.pods,
            pod_record,
            namespace=options.namespace,
            selector=_SELECTOR,
            clock=monotonic,
            limits=limits,
            reconnected=lambda reason: metrics.reconnects.labels("pods", reason).inc(),
        )
        self._services = Informer(
            kube,
            SERVICES,
            caches.services,
            service_record,
            namespace=options.namespace,
            selector=_SELECTOR,
            clock=monotonic,
            limits=limits,
            reconnected=lambda reason: metrics.reconnects.labels("services", reason).inc(),
        )
        self._leases = Informer(
            leases,
            LEASES,
            election.leases,
            lease_record,
            namespace=options.lease_namespace,
            selector=LEASE_SELECTOR,
            clock=monotonic,
            limits=limits,
            reconnected=lambda reason: metrics.reconnects.labels("leases", reason).inc(),
        )
        self._jobs = JobWatch(
            connection=connection,
            kube=kube,
            store=caches.jobs,
            namespace=options.namespace,
            clock=monotonic,
            count=metrics.request,
            limits=limits,
        )
        self._meter = LoopMeter(clock=monotonic)
        self._watches = tuple(
            Watched(resource, watch.synced, partial(_silence, watch), partial(_idleness, watch))
            for resource, watch in (
                ("ddpjobs", self._jobs),
                ("pods", self._pods),
                ("services", self._services),
                ("leases", self._leases),
            )
        )
        # Two consecutive watches without any activity, and the time to connect.
        dead_after = 2 * limits.silence + margin
        # A control plane that is away must not end this process: it could do nothing more after a restart.
        self._alive = (
            *(watch_moves(watch.resource, watch.idle_for, dead_after) for watch in self._watches),
            queue_moves(queue, options.stuck_after),
            self._meter.check,
        )
        self._answered = tuple(
            watch_is_answered(watch.resource, watch.silent_for, dead_after) for watch in self._watches
        )
        metrics.read(
            Readings(
                jobs=_Led(caches.jobs, election),
                queue_depth=lambda: queue.depth,
                queue_oldest_seconds=lambda: queue.oldest,
                reconcile_longest_seconds=self._longest_look,
                progress_targets=lambda: controller.memories.followed,
                pods=lambda: len(caches.pods),
                event_loop_lag_seconds=lambda: self._meter.lag,
                leading=lambda: float(election.leads),
                overlapping_leases=lambda: float(len(election.overlapping)),
                watch_ages={watch.resource: watch.silent_for for watch in self._watches},
            )
        )

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT.

        Raises:
            Exception: an essential part has failed; the process should end and be restarted.
        """
        loop = asyncio.get_running_loop()
        stop, stop_kopf, kopf_started = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with serve(
            self._options.port,
            metrics=self._metrics.parts,
            health=lambda: problems(self._alive),
            readiness=self._missing,
        ) as port:
            _log.info("serving /metrics, /healthz and /readyz on port %d", port)
            # Before kopf: when kopf ends, it cancels every task that was started after it.
            terms = Terms(self._controller, self._options.workers)
            tasks = [asyncio.create_task(part) for part in (*self._parts(), terms.watch_over())]
            candidate = asyncio.create_task(self._take_part(terms))
            stopped = asyncio.create_task(stop.wait())
            kopf = asyncio.create_task(self._jobs.run(stop=stop_kopf, started=kopf_started))
            await asyncio.wait(
                (asyncio.create_task(kopf_started.wait()), kopf),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                # With its own handlers kopf would wait for our tasks, and fail on a second signal.
                loop.add_signal_handler(number, stop.set)
            done, _ = await asyncio.wait((stopped, kopf, candidate, *tasks), return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping" if stopped in done else "stopping because a component has ended")
            await _cancel([candidate])
            # Before all else, so that the next process does not have to wait until the Lease expires.
            await self._election.release()
            await _cancel(tasks)
        stop_kopf.set()
        await asyncio.wait((kopf,), timeout=_STOP_SECONDS)
        await self._connection.close()
        for task in done - {stopped}:
            task.result()

    def _parts(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self._pods.run(),
            self._services.run(),
            self._leases.run(),
            self._jobs.close_gaps(),
            self._controller.poller.run(),
            self._meter.run(),
        )

    async def _take_part(self, terms: Terms) -> None:
        # Alongside the first LIST, which takes as long.
        prepared = asyncio.create_task(asyncio.to_thread(self._controller.prepare))
        # A job must not be judged by pods that merely have not been listed yet.
        for watch in self._watches:
            await watch.synced.wait()
        await prepared
        await self._election.run(terms)

    def _longest_look(self) -> float:
        running = self._controller.queue.longest_running
        return 0.0 if running is None else running[1]

    def _missing(self) -> list[str]:
        missing = [f"{watch.resource} have not been listed yet" for watch in self._watches if not watch.synced.is_set()]
        problem = self._election.problem
        return [*missing, *([problem] if problem else []), *problems((*self._answered, *self._alive))]


async def operate(options: Options) -> None:
    """Connect and run one operator.

    Raises:
        ConfigException: no cluster is configured.
    """
    operator = Operator(await connect(), options)
    # What was imported stays: each full collection would look at it again, and hold everything up meanwhile.
    gc.collect()
    gc.freeze()
    await operator.run()


class _Led:
    """The jobs of a store while this process leads, and none otherwise: else each would be reported twice."""

    def __init__(self, jobs: Store[JobRecord], election: Election) -> None:
        self._jobs = jobs
        self._election = election

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(self._jobs) if self._election.leads else iter(())


def _identity() -> str:
    """Name of this process as the holder of a Lease, like no other's.

    A container that is started again has that of the one before it in its pod, which has ended: it can take its Lease
    over without waiting.
    """
    pod, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    return f"{pod}_{uid}" if pod and uid else f"{socket.gethostname()}_{uuid4()}"


def _silence(watch: JobWatch | Informer[Any]) -> float:
    return watch.silent_for


def _idleness(watch: JobWatch | Informer[Any]) -> float:
    return watch.idle_for


def _clock() -> float:
    # Unlike the monotonic clock, it does not stop while the machine sleeps.
    return time.clock_gettime(_BOOT_CLOCK)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_STOP_SECONDS / 3)
