"""The operator's own metrics. Only gauges that end with their job carry its name; see job_metrics.py."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ddpjob_core.api.resources import NETWORK_POLICIES
from ddpjob_core.api.scope import LEASE_NAME
from ddpjob_core.api.status import DDPJobStatus, Phase
from ddpjob_core.engine.resting import facts_about
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.observed import JobRecord
from ddpjob_operator.job_metrics import RESTART_KINDS, job_metrics, restarts_of

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_LARGE = 2**20
"""Bytes of the jobs of a namespace that has a series of its own."""


def _zero() -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Values that are read at each scrape."""

    jobs: Iterable[JobRecord] = ()
    cached: Iterable[JobRecord] = ()
    queue_depth: Callable[[], float] = _zero
    queue_oldest_seconds: Callable[[], float] = _zero
    reconcile_longest_seconds: Callable[[], float] = _zero
    progress_targets: Callable[[], float] = _zero
    pods: Callable[[], float] = _zero
    event_loop_lag_seconds: Callable[[], float] = _zero
    leading: Callable[[], float] = _zero
    overlapping_leases: Callable[[], float] = _zero
    watch_ages: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    namespaces: Callable[[], Mapping[str, bool]] = dict
    lease: str = LEASE_NAME


class Metrics:
    """All metrics, prefixed `ddpjob_operator_`, and those of the process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs: Iterable[JobRecord] = ()
        self.reconcile_seconds = Histogram(
            "ddpjob_operator_reconcile_seconds",
            "Duration of one reconcile of one job, including its writes.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.errors = Counter(
            "ddpjob_operator_reconcile_errors",
            "Reconciles that ended in an unexpected error.",
            registry=self.registry,
        )
        self.conflicts = Counter(
            "ddpjob_operator_status_conflicts",
            "Status writes refused because the job had changed in the meantime.",
            registry=self.registry,
        )
        self.refusals = Counter(
            "ddpjob_operator_status_refusals",
            "Statuses that the API server refused, as a whole or in part, as invalid or forbidden.",
            registry=self.registry,
        )
        self.requests = Counter(
            "ddpjob_operator_api_requests",
            "Requests to the API server; the code is unanswered if there was no response.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "ddpjob_operator_api_request_seconds",
            "Time until the API server began to respond, excluding watches and kopf's own requests.",
            ["verb", "resource"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._restarts = Counter(
            "ddpjob_operator_restarts",
            "Restarts of jobs: of all pods (counted or ignored), or of the worker processes in running pods (process).",
            ["kind"],
            registry=self.registry,
        )
        self._failures = Counter(
            "ddpjob_operator_failures",
            "Failures that ended an attempt, by class of the root cause.",
            ["class"],
            registry=self.registry,
        )
        self.reconnects = Counter(
            "ddpjob_operator_watch_reconnects",
            "Restarted watches of pods, services, NetworkPolicies and leases: ended by the server, failed, refused (a "
            "permission is missing), or gone (listed again).",
            ["resource", "reason"],
            registry=self.registry,
        )
        self.polls = Counter(
            "ddpjob_operator_progress_polls",
            "Polls of a job's progress, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._dropped = Counter(
            "ddpjob_operator_report_values_dropped",
            "Values reported by pods (on /progress or at their termination) that were ignored for their type or range.",
            ["source", "field"],
            registry=self.registry,
        )
        self._begin_at_zero()
        # CPU seconds, memory and open files, under the names that every Prometheus client uses.
        ProcessCollector(registry=self.registry)

    def read(self, readings: Readings) -> None:
        """Read these values at each scrape."""
        self._gauge("queue_depth", "Jobs waiting to be reconciled.", readings.queue_depth)
        self._gauge(
            "queue_oldest_seconds", "How long the oldest waiting job has waited.", readings.queue_oldest_seconds
        )
        self._gauge(
            "reconcile_longest_seconds",
            "Age of the longest reconcile still running.",
            readings.reconcile_longest_seconds,
        )
        self._gauge("progress_targets", "Jobs whose progress is being polled.", readings.progress_targets)
        self._gauge("pods", "Pods in the cache.", readings.pods)
        self._gauge(
            "event_loop_lag_seconds",
            "How late the event loop was at the last measurement.",
            readings.event_loop_lag_seconds,
        )
        Gauge(
            "ddpjob_operator_leading",
            "1 if this process leads, 0 if it stands by, of those that share its Lease.",
            ["lease"],
            registry=self.registry,
        ).labels(readings.lease).set_function(readings.leading)
        self._gauge(
            "overlapping_leases",
            "Operators with another scope that lead some of the same jobs: this one stands by meanwhile.",
            readings.overlapping_leases,
        )
        ages = Gauge(
            "ddpjob_operator_watch_age_seconds",
            "Time since the last activity on a resource's watch.",
            ["resource"],
            registry=self.registry,
        )
        for resource, age in readings.watch_ages.items():
            ages.labels(resource).set_function(age)
        self.registry.register(_ServedNamespaces(readings.namespaces))
        self.registry.register(_JobsByPhase(readings.jobs))
        self.registry.register(_CachedBytes(readings.cached))
        self._jobs = readings.jobs

    def reconciling(self) -> AbstractContextManager[object]:
        """See `ddpjob_core.engine.protocols.Metrics`, which also documents the next six."""
        return self.reconcile_seconds.time()

    def reconcile_failed(self) -> None:
        """An unexpected error."""
        self.errors.inc()

    def status_conflict(self) -> None:
        """A status write was refused."""
        self.conflicts.inc()

    def status_refused(self) -> None:
        """A status was refused as it is."""
        self.refusals.inc()

    def polled(self, outcome: str) -> None:
        """A read of progress has ended."""
        self.polls.labels(outcome).inc()

    def dropped(self, source: str, field: str) -> None:
        """A reported value was ignored."""
        self._dropped.labels(source, field).inc()

    def request(self, verb: str, resource: str, code: str) -> None:
        """Count a request to the API server."""
        self.requests.labels(verb, resource, code).inc()

    def answered(self, verb: str, resource: str, seconds: float) -> None:
        """Observe how long the API server took to begin its answer."""
        self.request_seconds.labels(verb, resource).observe(seconds)

    def status_written(self, before: DDPJobStatus | None, after: DDPJobStatus) -> None:
        """Count the restarts and the failure that this status reports and the previous one did not."""
        older = restarts_of(before or DDPJobStatus())
        for kind, number in restarts_of(after).items():
            self._restarts.labels(kind).inc(max(0, number - older[kind]))
        failure, known = after.failure, before.failure if before is not None else None
        if failure is None or failure.failure_class is None:
            return
        # A cause that becomes better known, by a message or a traceback, is not another failure.
        if known is None or (failure.attempt, failure.failure_class) != (known.attempt, known.failure_class):
            self._failures.labels(failure.failure_class).inc()

    def parts(self) -> Iterator[bytes]:
        """All metrics in Prometheus' text format, in parts that each take little time; some are empty."""
        yield generate_latest(self.registry)
        yield from job_metrics(self._jobs)

    def _begin_at_zero(self) -> None:
        # Otherwise the first of a kind would appear as 1, and no rate would show it.
        for kind in RESTART_KINDS:
            self._restarts.labels(kind)
        for failure in FailureClass:
            self._failures.labels(failure.value)
        for resource in ("pods", "services", NETWORK_POLICIES.plural, "leases"):
            for reason in ("ended", "failed", "gone", "refused"):
                self.reconnects.labels(resource, reason)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(f"ddpjob_operator_{name}", text, registry=self.registry).set_function(value)


class _ServedNamespaces(Collector):
    def __init__(self, namespaces: Callable[[], Mapping[str, bool]]) -> None:
        self._namespaces = namespaces

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "ddpjob_operator_namespace_served",
            "For each namespace of --namespace: 1 if its jobs, pods and services can be watched, else 0.",
            labels=["namespace"],
        )
        for namespace, served in self._namespaces().items():
            family.add_metric([namespace], float(served))
        yield family


class _JobsByPhase(Collector):
    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        phases = Tally(facts_about(job).phase for job in self._jobs)
        family = GaugeMetricFamily("ddpjob_operator_jobs", "DDPJobs by phase.", labels=["phase"])
        for phase in Phase:
            family.add_metric([phase.value], phases[phase.value])
        yield family


class _CachedBytes(Collector):
    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        sizes: Tally[str] = Tally()
        for job in self._jobs:
            sizes[job.namespace] += job.size
        family = GaugeMetricFamily(
            "ddpjob_operator_cached_job_bytes",
            'Memory of the specs of cached jobs, approximately; of namespaces with less than 1 MiB together, as "".',
            labels=["namespace"],
        )
        # There cannot be more series than the operator has MiB.
        large = {namespace: size for namespace, size in sizes.items() if size >= _LARGE}
        for namespace, size in {"": sizes.total() - sum(large.values()), **large}.items():
            family.add_metric([namespace], size)
        yield family
