"""The metrics of a process' steps: a step only adds to numbers, and a scrape turns them into metrics.

The counters of prometheus_client take a lock at each step, and their code and data do not stay in the processor's cache
between two steps that compute.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LOCAL: Final = (
    "Seconds of steps in which this process depends on no other: waiting for data, and the forward pass "
    "(on a GPU only the time to queue it)."
)


class StepTotals(Collector):
    """Added to by the thread that trains, collected by the one that serves."""

    def __init__(self, prefix: str, labels: Sequence[str], values: Sequence[str]) -> None:
        """Args:
        prefix: of the metrics' names, without a trailing underscore.
        labels: names of the labels, the same for all of them.
        values: of the labels.
        """
        self._prefix = prefix
        self._labels = labels
        self._values = values
        self.newest: tuple[int, float | None] = (0, None)
        """The last finished step, counting those before a resume, and when this process finished it, in Unix time.

        Replaced as one, so that the two always match.
        """
        self._samples = 0
        self._data_seconds = 0.0
        self._local = 0.0
        self._seconds = 0.0
        # One more for steps beyond the largest bucket; their sum is the number of steps.
        self._counts = [0] * (len(_BUCKETS) + 1)

    def add(self, step: int, ended: float, *, samples: int, data_seconds: float, seconds: float) -> None:
        """A step is done.

        Args:
            step: its number.
            ended: when, in Unix time.
            samples: of this process.
            data_seconds: how long this process waited for data.
            seconds: since the end of the previous step.
        """
        self.newest = (step, ended)
        self._samples += samples
        self._data_seconds += data_seconds
        self._seconds += seconds
        self._counts[bisect_left(_BUCKETS, seconds)] += 1

    def add_local(self, seconds: float) -> None:
        """Add time in which this process needed no other."""
        self._local += seconds

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        # All are read before the first is yielded, since further steps may finish meanwhile.
        cumulative, seconds = list(accumulate(self._counts)), self._seconds
        step, ended = self.newest
        for kind, name, text, value in (
            (GaugeMetricFamily, "step", "Completed optimizer steps, including those before a resume.", step),
            (
                GaugeMetricFamily,
                "last_step_timestamp_seconds",
                "When the last step ended, in Unix time; 0 before the first.",
                ended or 0.0,
            ),
            (CounterMetricFamily, "steps", "Optimizer steps of this process.", cumulative[-1]),
            (CounterMetricFamily, "samples", "Samples consumed by this process.", self._samples),
            (
                CounterMetricFamily,
                "data_wait_seconds",
                "Seconds that this process waited for data.",
                self._data_seconds,
            ),
            (CounterMetricFamily, "local_seconds", _LOCAL, self._local),
        ):
            family = kind(f"{self._prefix}_{name}", text, labels=self._labels)
            family.add_metric(self._values, value)
            yield family
        durations = HistogramMetricFamily(
            f"{self._prefix}_step_duration_seconds",
            "Seconds from one optimizer step to the next, including the wait for data.",
            labels=self._labels,
        )
        bounds = [*map(floatToGoString, _BUCKETS), "+Inf"]
        durations.add_metric(self._values, list(zip(bounds, cumulative, strict=True)), seconds)
        yield durations
