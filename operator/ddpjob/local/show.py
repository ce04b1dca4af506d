"""Who is told what happens in a run without a cluster."""

from collections.abc import Callable
from typing import Protocol

from ddpjob.local.network import Network
from ddpjob.local.records import Records
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.observed import JobRecord


class Show(Protocol):
    """Who is told what happens."""

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        """The job starts, or goes on where it was left."""

    def status(self, status: DDPJobStatus) -> None:
        """The job's status was written."""

    def event(self, kind: str, reason: str, message: str) -> None:
        """An Event on the job, its type being Normal or Warning."""

    def output(self, pod: str, line: str) -> None:
        """A line that a pod wrote."""


class CarefulShow:
    """Tells a `Show` until that fails: a terminal that is gone must not reach into what runs a training."""

    def __init__(self, show: Show, failed: Callable[[], None]) -> None:
        """Args:
        show: who is told.
        failed: called once telling has failed; nothing is told any more then.
        """
        self._show = show
        self._failed = failed
        self.error: Exception | None = None
        """Why nothing is told any more."""

    def begun(self, job: JobRecord, network: Network, records: Records, *, resumed: bool) -> None:
        """See `Show.begun`."""
        self._tell(lambda: self._show.begun(job, network, records, resumed=resumed))

    def status(self, status: DDPJobStatus) -> None:
        """See `Show.status`."""
        self._tell(lambda: self._show.status(status))

    def event(self, kind: str, reason: str, message: str) -> None:
        """See `Show.event`."""
        self._tell(lambda: self._show.event(kind, reason, message))

    def output(self, pod: str, line: str) -> None:
        """See `Show.output`."""
        self._tell(lambda: self._show.output(pod, line))

    def _tell(self, tell: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            tell()
        except Exception as error:  # noqa: BLE001 whatever it is, the training has to save before it is raised
            self.error = error
            self._failed()
