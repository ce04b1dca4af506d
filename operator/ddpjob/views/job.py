"""A DDPJob and its events, read from raw objects."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from ddpjob_core.api.base import parse_time
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.observe import job_record, pod_record
from ddpjob_core.observations.observed import JobRecord, PodRecord, Terminated

__all__ = ["Job", "JobEvent", "Json", "PodRecord", "event_of", "job_of", "pod_record", "trainer_has_ended"]

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A DDPJob: its spec, its status, and when it was created."""

    record: JobRecord
    created: datetime | None

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.record.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.record.namespace

    @property
    def status(self) -> DDPJobStatus:
        """The status, empty if the operator has not written one yet."""
        return self.record.status or DDPJobStatus()


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes Event on a job: `time` is when it was last seen."""

    time: datetime | None
    type: str
    reason: str
    message: str


def job_of(raw: Json) -> Job:
    """The job in a raw DDPJob.

    Raises:
        UsageProblem: it has no name, namespace or uid.
    """
    record = job_record(raw)
    if record is None:
        raise UsageProblem("the API server returned a DDPJob without a name, namespace or uid")
    return Job(record, parse_time((raw.get("metadata") or {}).get("creationTimestamp")))


def trainer_has_ended(pod: PodRecord) -> bool:
    """Whether the trainer of a pod writes nothing more: it has terminated, or will never start."""
    return isinstance(pod.trainer, Terminated) or pod.phase in ("Succeeded", "Failed")


def event_of(raw: Json) -> JobEvent:
    """The event in a raw Event."""
    time = raw.get("lastTimestamp") or raw.get("eventTime") or (raw.get("metadata") or {}).get("creationTimestamp")
    return JobEvent(
        parse_time(time), str(raw.get("type") or ""), str(raw.get("reason") or ""), str(raw.get("message") or "")
    )
