"""What shows a run without a cluster as it happens."""

from collections.abc import Callable
from typing import Protocol

from ddpjob.local.network import Network
from ddpjob.local.records import Records
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.observed import JobRecord


class Show(Protocol):
    """Shows what happens."""

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        """The job starts, or resumes where it was left."""

    def status(self, status: DDPJobStatus) -> None:
        """The job's status was written."""

    def event(self, kind: str, reason: str, message: str) -> None:
        """An Event on the job, its type being Normal or Warning."""

    def output(self, pod: str, line: str) -> None:
        """A pod has written a line."""


class CarefulShow:
    """Calls a `Show` until that fails: a terminal that is gone must not disturb a training."""

    def __init__(self, show: Show, failed: Callable[[], None]) -> None:
        """Args:
        show: what is called.
        failed: called after the first failure; `show` is not called any more then.
        """
        self._show = show
        self._failed = failed
        self.error: Exception | None = None
        """The failure, after which `show` is not called any more."""

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        """See `Show.begun`."""
        self._call(lambda: self._show.begun(job, network, records, resumed=resumed))

    def status(self, status: DDPJobStatus) -> None:
        """See `Show.status`."""
        self._call(lambda: self._show.status(status))

    def event(self, kind: str, reason: str, message: str) -> None:
        """See `Show.event`."""
        self._call(lambda: self._show.event(kind, reason, message))

    def output(self, pod: str, line: str) -> None:
        """See `Show.output`."""
        self._call(lambda: self._show.output(pod, line))

    def _call(self, call: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001 whatever it is, the training must save before it is raised
            self.error = error
            self._failed()
