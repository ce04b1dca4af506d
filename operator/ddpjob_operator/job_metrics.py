"""Metrics of each job, computed from the cache at each scrape: their series end with the job."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.observations.active_time import active_since
from ddpjob_core.observations.observed import JobRecord

RESTART_KINDS: Final = ("counted", "ignored", "process")
_PREFIX: Final = "ddpjob_operator_job"
_LABELS: Final = ("namespace", "ddpjob")


def restarts_of(status: DDPJobStatus) -> Mapping[str, int]:
    """How often the job has been restarted, by kind."""
    restarts = status.restarts
    return dict(zip(RESTART_KINDS, (restarts.counted, restarts.ignored, restarts.process), strict=True))


class JobMetrics(Collector):
    """What the status of each job says, for alerts and for dashboards of trainings that are not scraped."""

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        """Args:
        jobs: yields all existing jobs each time it is iterated.
        """
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """One family per fact."""
        families = _Families()
        for job in self._jobs:
            families.add((job.namespace, job.name), job.status or DDPJobStatus())
        return iter(families.all)


class _Families:
    def __init__(self) -> None:
        self._phase = _gauge("phase", "Always 1; the label is the job's phase.", "phase")
        self._attempt = _gauge("attempt", "Number of the job's current attempt, from 0.")
        self._restarts = CounterMetricFamily(
            f"{_PREFIX}_restarts",
            "Restarts: of all pods (counted or ignored), or of the worker processes in running pods (process).",
            labels=(*_LABELS, "kind"),
        )
        self._failure = _gauge(
            "failure",
            "Always 1, from the first failure until the job succeeds; the label is the class of the last failure.",
            "class",
        )
        self._stalled = _gauge(
            "stalled", "1 while no step has been completed for longer than spec.progressDeadline, else 0."
        )
        self._nodes = _gauge("nodes", "Pods of the attempt: desired, and ready (their program is running).", "state")
        self._step = _gauge("step", "Completed optimizer steps, once reported.")
        self._planned = _gauge("planned_steps", "Optimizer steps planned for the whole training, once reported.")
        self._progress = _gauge("progress_ratio", "Fraction of the planned steps completed, from 0 to 1.")
        self._loss = _gauge("loss", "The last reported training loss.")
        self._last_step = _gauge("last_step_timestamp_seconds", "When the last step ended, by the clock of rank 0.")
        self._start = _gauge("start_timestamp_seconds", "When the job started or was last resumed.")

    @property
    def all(self) -> list[Metric]:
        return [value for value in vars(self).values() if isinstance(value, Metric)]

    def add(self, key: tuple[str, str], status: DDPJobStatus) -> None:
        self._phase.add_metric([*key, status.phase.value], 1)
        self._attempt.add_metric(key, status.attempt)
        for kind, number in restarts_of(status).items():
            self._restarts.add_metric([*key, kind], number)
        if status.failure is not None and status.failure.failure_class is not None:
            self._failure.add_metric([*key, status.failure.failure_class], 1)
        self._stalled.add_metric(key, status.holds(ConditionType.TRAINING_STALLED) and not status.finished)
        if status.nodes is not None:
            self._nodes.add_metric([*key, "desired"], status.nodes.desired)
            self._nodes.add_metric([*key, "ready"], status.nodes.ready)
        _add_time(self._start, key, active_since(status))
        progress = status.progress
        if progress is None:
            return
        for family, value in (
            (self._step, progress.step),
            (self._planned, progress.total_steps),
            (self._loss, progress.loss),
        ):
            if value is not None:
                family.add_metric(key, value)
        if progress.step is not None and progress.total_steps:
            self._progress.add_metric(key, min(1.0, progress.step / progress.total_steps))
        _add_time(self._last_step, key, progress.last_step_time)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=(*_LABELS, *labels))


def _add_time(family: GaugeMetricFamily, key: tuple[str, str], time: datetime | None) -> None:
    if time is not None:
        family.add_metric(key, time.timestamp())
