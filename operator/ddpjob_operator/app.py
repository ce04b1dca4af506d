"""Puts the operator together and runs it until it is asked to stop or a component fails."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from ddpjob_core.api.constants import LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.resources import PODS, SERVICES
from ddpjob_core.engine.clock import SteadyClock
from ddpjob_core.engine.controller import Controller, Rates
from ddpjob_core.observations.observe import pod_record, service_record
from ddpjob_operator.connection import Connection, connect
from ddpjob_operator.handlers import JobWatch
from ddpjob_operator.health import LoopMeter, problems, queue_moves, watch_is_alive
from ddpjob_operator.informer import Informer, WatchLimits
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.metrics import Metrics, Readings
from ddpjob_operator.server import serve
from ddpjob_operator.ssh_keys import new_ssh_key
from ddpjob_operator.transport import open_transport

_STOP_SECONDS: Final = 1.5
_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What can be configured. Durations are in seconds."""

    namespace: str | None = None
    workers: int = 8
    port: int = 8080
    poll_interval: float = 2.0
    progress_writes: float = 50.0
    requests_in_flight: int = 50
    watch_seconds: float = 30.0
    stuck_after: float = 300.0


@dataclass(frozen=True, slots=True)
class Watched:
    """A watched resource, whether it has been listed, and how long its watch has been silent."""

    resource: str
    synced: asyncio.Event
    silent_for: Callable[[], float]


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
        kube = KubeClient(
            connection, count=metrics.request, answered=metrics.answered, in_flight=options.requests_in_flight
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
        self._watches = (
            Watched("ddpjobs", self._jobs.synced, lambda: self._jobs.silent_for),
            Watched("pods", self._pods.synced, lambda: self._pods.silent_for),
            Watched("services", self._services.synced, lambda: self._services.silent_for),
        )
        # Two consecutive watches without any activity, and the time to connect.
        dead_after = 2 * limits.silence + margin
        self._checks = (
            *(watch_is_alive(watch.resource, watch.silent_for, dead_after) for watch in self._watches),
            queue_moves(queue, options.stuck_after),
            self._meter.check,
        )
        metrics.read(
            Readings(
                jobs=caches.jobs,
                queue_depth=lambda: queue.depth,
                queue_oldest_seconds=lambda: queue.oldest,
                reconcile_longest_seconds=self._longest_look,
                progress_targets=lambda: controller.memories.followed,
                pods=lambda: len(caches.pods),
                event_loop_lag_seconds=lambda: self._meter.lag,
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
            metrics=self._metrics.render,
            health=lambda: problems(self._checks),
            readiness=self._missing,
        ) as port:
            _log.info("serving /metrics, /healthz and /readyz on port %d", port)
            # Before kopf: when kopf ends, it cancels every task that was started after it.
            # Alongside the first LIST, which takes as long.
            prepared = asyncio.create_task(asyncio.to_thread(self._controller.prepare))
            tasks = [asyncio.create_task(part) for part in self._parts(prepared)]
            stopped = asyncio.create_task(stop.wait())
            kopf = asyncio.create_task(self._jobs.run(stop=stop_kopf, started=kopf_started))
            await asyncio.wait(
                (asyncio.create_task(kopf_started.wait()), kopf),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                # With its own handlers kopf would wait for our tasks, and fail on a second signal.
                loop.add_signal_handler(number, stop.set)
            done, _ = await asyncio.wait((stopped, kopf, *tasks), return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping" if stopped in done else "stopping because a component has ended")
            await _cancel(tasks)
        stop_kopf.set()
        await asyncio.wait((kopf,), timeout=_STOP_SECONDS)
        await self._connection.close()
        for task in done - {stopped}:
            task.result()

    def _parts(self, prepared: asyncio.Task[None]) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self._pods.run(),
            self._services.run(),
            self._jobs.close_gaps(),
            self._controller.poller.run(),
            self._meter.run(),
            *(self._work(prepared) for _ in range(self._options.workers)),
        )

    async def _work(self, prepared: asyncio.Task[None]) -> None:
        await asyncio.shield(prepared)
        # A job must not be judged by pods that merely have not been listed yet.
        await self._pods.synced.wait()
        await self._services.synced.wait()
        await self._controller.work()

    def _longest_look(self) -> float:
        running = self._controller.queue.longest_running
        return 0.0 if running is None else running[1]

    def _missing(self) -> list[str]:
        return [f"{watch.resource} have not been listed yet" for watch in self._watches if not watch.synced.is_set()]


async def operate(options: Options) -> None:
    """Connect and run one operator.

    Raises:
        ConfigException: no cluster is configured.
    """
    await Operator(await connect(), options).run()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_STOP_SECONDS / 3)
