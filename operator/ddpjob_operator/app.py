"""Puts the operator together and runs it until it is asked to stop or a component fails."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from ddpjob_core.api.constants import LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.network_policy import Isolation
from ddpjob_core.api.resources import LEASES, NETWORK_POLICIES, PODS, SERVICES, Resource
from ddpjob_core.api.scope import LEASE_NAMESPACE, Scope
from ddpjob_core.engine.clock import SteadyClock
from ddpjob_core.engine.controller import Controller, Rates
from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.store import R, Store
from ddpjob_core.observations.observe import network_policy_record, pod_record, service_record
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.connection import Connection, connect
from ddpjob_operator.election import Election, Times
from ddpjob_operator.fence import Fence
from ddpjob_operator.garbage import collect_garbage
from ddpjob_operator.handlers import JobWatch
from ddpjob_operator.health import LoopMeter, problems, queue_moves
from ddpjob_operator.informer import Informer, WatchLimits
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.lease import LEASE_SELECTOR, lease_record
from ddpjob_operator.metrics import Metrics, Readings
from ddpjob_operator.server import serve
from ddpjob_operator.ssh_keys import new_ssh_key
from ddpjob_operator.terms import Terms
from ddpjob_operator.watches import Watched, Watches

_STOP_SECONDS: Final = 1.5
_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What can be configured. Durations are in seconds."""

    scope: Scope = field(default_factory=Scope)
    lease_namespace: str = LEASE_NAMESPACE
    lease_duration: float = 10.0
    workers: int = 32
    port: int = 8080
    poll_interval: float = 2.0
    progress_writes: float = 50.0
    requests_in_flight: int = 50
    watch_seconds: float = 30.0
    stuck_after: float = 300.0
    ttl_seconds_after_finished: int | None = None
    isolation: Isolation | None = None
    """Who may connect to pods, None to make no NetworkPolicies."""


class Operator:
    """One operator process."""

    def __init__(self, connection: Connection, options: Options) -> None:
        """Args:
        connection: the cluster.
        options: the configuration.
        """
        loop = asyncio.get_running_loop()
        margin = max(2.0, options.watch_seconds / 3)
        self._limits = limits = WatchLimits(
            watch=options.watch_seconds, silence=options.watch_seconds + margin, longest_refusal=min(8.0, margin)
        )
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
            scope=options.scope,
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
            is_listed=self._is_listed,
            ttl_seconds_after_finished=options.ttl_seconds_after_finished,
            isolation=options.isolation,
            new_seed=partial(secrets.token_hex, 16),
        )
        caches, queue = controller.caches, controller.queue
        self._jobs = JobWatch(
            connection=connection,
            kube=kube,
            store=caches.jobs,
            scope=options.scope,
            clock=monotonic,
            count=metrics.request,
            limits=limits,
        )
        self._leases = self._informer(
            leases,
            LEASES,
            election.leases,
            lease_record,
            namespace=options.lease_namespace,
            selector=LEASE_SELECTOR,
        )
        self._informers: list[Informer[Any]] = [self._leases]
        served: dict[str | None, list[Watched]] = {}
        for namespace, jobs in self._jobs.feeds.items():
            pods = self._informer(kube, PODS, caches.pods, pod_record, namespace=namespace)
            services = self._informer(kube, SERVICES, caches.services, service_record, namespace=namespace)
            self._informers += [pods, services]
            served[namespace] = [
                Watched("ddpjobs", namespace, jobs),
                Watched("pods", namespace, pods),
                Watched("services", namespace, services),
            ]
            if options.isolation is not None:
                policies = self._informer(
                    kube, NETWORK_POLICIES, caches.network_policies, network_policy_record, namespace=namespace
                )
                self._informers.append(policies)
                served[namespace].append(Watched(NETWORK_POLICIES.plural, namespace, policies))
        self._meter = LoopMeter(clock=monotonic)
        # Two consecutive watches without any activity, and the time to connect.
        dead_after = 2 * limits.silence + margin
        self._watches = watches = Watches(served, Watched("leases", None, self._leases), dead_after)
        # A control plane that is away must not end this process: it could do nothing more after a restart.
        self._alive = (*watches.alive, queue_moves(queue, options.stuck_after), self._meter.check)
        metrics.read(
            Readings(
                jobs=_Led(caches.jobs, election),
                cached=caches.jobs,
                queue_depth=lambda: queue.depth,
                queue_oldest_seconds=lambda: queue.oldest,
                reconcile_longest_seconds=self._longest_look,
                progress_targets=lambda: controller.memories.followed,
                pods=lambda: len(caches.pods),
                event_loop_lag_seconds=lambda: self._meter.lag,
                leading=lambda: float(election.leads),
                overlapping_leases=lambda: float(len(election.overlapping)),
                watch_ages={each: partial(watches.age, each) for each in watches.resources},
                namespaces=watches.shown,
                lease=options.scope.lease,
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
            remarks=self._watches.remarks,
        ) as port:
            _log.info("serving /metrics, /healthz and /readyz on port %d", port)
            _log.info("for the jobs of %s", self._options.scope)
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
            *(informer.run() for informer in self._informers),
            self._watches.follow(self._controller.look_at),
            self._jobs.close_gaps(),
            self._controller.poller.run(),
            self._meter.run(),
        )

    async def _take_part(self, terms: Terms) -> None:
        # Alongside the first LIST, which takes as long.
        prepared = asyncio.create_task(asyncio.to_thread(self._controller.prepare))
        await self._watches.useful()
        await prepared
        await self._election.run(terms)

    def _longest_look(self) -> float:
        running = self._controller.queue.longest_running
        return 0.0 if running is None else running[1]

    def _missing(self) -> list[str]:
        problem = self._election.problem
        return [*self._watches.problems(), *([problem] if problem else []), *problems(self._alive)]

    def _is_listed(self, namespace: str) -> bool:
        return self._watches.have_listed(namespace)

    def _informer(
        self,
        kube: KubeClient,
        resource: Resource,
        store: Store[R],
        parse: Callable[[Json], R | None],
        *,
        namespace: str | None,
        selector: str = _SELECTOR,
    ) -> Informer[R]:
        return Informer(
            kube,
            resource,
            store,
            parse,
            namespace=namespace,
            selector=selector,
            clock=monotonic,
            limits=self._limits,
            reconnected=lambda reason: self._metrics.reconnects.labels(resource.plural, reason).inc(),
        )


async def operate(options: Options) -> None:
    """Connect and run one operator.

    Raises:
        ConfigException: no cluster is configured.
    """
    operator = Operator(await connect(), options)
    collecting = asyncio.create_task(collect_garbage(monotonic))
    try:
        await operator.run()
    finally:
        collecting.cancel()


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


def _clock() -> float:
    # Unlike the monotonic clock, it does not stop while the machine sleeps.
    return time.clock_gettime(_BOOT_CLOCK)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_STOP_SECONDS / 3)
