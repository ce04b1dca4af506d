"""The operator's own metrics. No label grows with the number of jobs."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ddpjob.api.status import Phase
from ddpjob.observed import JobRecord

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """All metrics in a registry of their own, prefixed `ddpjob_operator_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "ddpjob_operator_reconcile_seconds",
            "Duration of one look at one job, its writes included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.errors = Counter(
            "ddpjob_operator_reconcile_errors",
            "Looks at a job that ended in an unexpected error.",
            registry=self.registry,
        )
        self.conflicts = Counter(
            "ddpjob_operator_status_conflicts",
            "Status writes refused because the job had changed meanwhile.",
            registry=self.registry,
        )
        self.requests = Counter(
            "ddpjob_operator_api_requests",
            "Requests to the API server; the code is unanswered where no answer came.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.restarts = Counter(
            "ddpjob_operator_restarts",
            "Restarts of jobs after a failure.",
            registry=self.registry,
        )
        self.reconnects = Counter(
            "ddpjob_operator_watch_reconnects",
            "Watches that were begun again, by resource and reason.",
            ["resource", "reason"],
            registry=self.registry,
        )
        self.polls = Counter(
            "ddpjob_operator_progress_polls",
            "Reads of a training's progress by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._watch_age = Gauge(
            "ddpjob_operator_watch_age_seconds",
            "Seconds since the watch of a resource last gave a sign of life.",
            ["resource"],
            registry=self.registry,
        )

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A value that is read when the metrics are."""
        Gauge(f"ddpjob_operator_{name}", text, registry=self.registry).set_function(value)

    def watch_age(self, resource: str, value: Callable[[], float]) -> None:
        """How long ago the watch of a resource gave a sign of life."""
        self._watch_age.labels(resource).set_function(value)

    def count_jobs(self, jobs: Iterable[JobRecord]) -> None:
        """Count these jobs by phase whenever the metrics are read."""
        self.registry.register(_JobsByPhase(jobs))

    def request(self, verb: str, resource: str, code: str) -> None:
        """Count a request to the API server."""
        self.requests.labels(verb, resource, code).inc()

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _JobsByPhase(Collector):
    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        phases = Tally(job.status.phase if job.status is not None else Phase.PENDING for job in self._jobs)
        family = GaugeMetricFamily("ddpjob_operator_jobs", "DDPJobs by phase.", labels=["phase"])
        for phase in Phase:
            family.add_metric([phase.value], phases[phase])
        yield family
