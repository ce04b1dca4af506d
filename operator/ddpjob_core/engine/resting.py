"""Jobs that have finished or are suspended, kept small: they are hardly ever looked at, and there may be thousands."""

import zlib
from dataclasses import fields
from typing import Any, Final

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.facts import JobFacts, facts_of
from ddpjob_core.observations.observed import JobRecord

_PACKED: Final = ("spec", "status")
_PLAIN: Final = tuple(field.name for field in fields(JobRecord) if field.name not in _PACKED)
_QUICK: Final = 1


class RestingJob(JobRecord):
    """A job whose spec and status are packed: a tenth of the memory, if they say what jobs say. `awake` unpacks them.

    What cannot be compressed takes as much as it has.
    """

    __slots__ = ("_packed_spec", "_packed_status", "facts")

    _packed_spec: bytes
    _packed_status: bytes
    facts: JobFacts

    def __init__(self, job: JobRecord, spec: DDPJobSpec, status: DDPJobStatus) -> None:
        """Args:
        job: the record.
        spec: its spec.
        status: its status.
        """
        packed: dict[str, Any] = {
            "_packed_spec": zlib.compress(spec.model_dump_json(by_alias=True, exclude_defaults=True).encode(), _QUICK),
            "_packed_status": zlib.compress(status.model_dump_json(by_alias=True, exclude_none=True).encode(), _QUICK),
            "facts": facts_of(status),
        }
        plain = {name: getattr(job, name) for name in _PLAIN}
        plain["size"] = len(packed["_packed_spec"]) + len(packed["_packed_status"])
        super().__init__(**plain, spec=None, status=None)
        for name, value in packed.items():
            object.__setattr__(self, name, value)

    def awake(self) -> JobRecord:
        """The record with its spec and status."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        spec = DDPJobSpec.model_validate_json(zlib.decompress(self._packed_spec))
        status = DDPJobStatus.model_validate_json(zlib.decompress(self._packed_status))
        return JobRecord(**plain, spec=spec, status=status)


class JobStore(Store[JobRecord]):
    """The cache of jobs. Some rest in it: iterating yields them as `RestingJob`, `get` wakes them up."""

    def get(self, namespace: str, name: str) -> JobRecord | None:
        """The job of this name, whole."""
        found = super().get(namespace, name)
        return found.awake() if isinstance(found, RestingJob) else found

    def _kept(self, record: JobRecord) -> JobRecord:
        return at_rest(record)


def at_rest(record: JobRecord) -> JobRecord:
    """The record in the form in which it is kept: packed if the job has finished or is suspended."""
    spec, status = record.spec, record.status
    if isinstance(record, RestingJob) or spec is None or status is None or record.unreadable:
        return record
    rests = status.finished or (spec.suspend and status.holds(ConditionType.SUSPENDED))
    return RestingJob(record, spec, status) if rests else record


def has_status(job: JobRecord) -> bool:
    """Whether a status of the job has been written."""
    return isinstance(job, RestingJob) or job.status is not None


def facts_about(job: JobRecord) -> JobFacts:
    """What the status of a cached job says."""
    return job.facts if isinstance(job, RestingJob) else facts_of(job.status or _NEW)


_NEW: Final = DDPJobStatus()
"""What is known of a job without a status."""
