"""Metrics of a run without a cluster: none, since nobody scrapes the runner."""

from contextlib import AbstractContextManager, nullcontext

from ddpjob_core.api.status import DDPJobStatus


class NoMetrics:
    """A `Metrics` that counts nothing."""

    def reconciling(self) -> AbstractContextManager[object]:
        """See `Metrics.reconciling`."""
        return nullcontext()

    def reconcile_failed(self) -> None:
        """See `Metrics.reconcile_failed`."""

    def status_conflict(self) -> None:
        """See `Metrics.status_conflict`."""

    def status_refused(self) -> None:
        """See `Metrics.status_refused`."""

    def status_written(self, before: DDPJobStatus | None, after: DDPJobStatus) -> None:
        """See `Metrics.status_written`."""

    def polled(self, outcome: str) -> None:
        """See `Metrics.polled`."""

    def dropped(self, source: str, field: str) -> None:
        """See `Metrics.dropped`."""
