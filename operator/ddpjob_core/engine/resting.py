"""Jobs that have finished, kept small: they are hardly ever looked at, and there may be tens of thousands of them."""

import zlib
from dataclasses import fields
from typing import Any, Final

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.facts import JobFacts, facts_of
from ddpjob_core.observations.observed import JobRecord

_PACKED: Final = ("spec", "status")
_PLAIN: Final = tuple(field.name for field in fields(JobRecord) if field.name not in _PACKED)
_QUICK: Final = 1


class RestingJob(JobRecord):
    """A finished job whose spec and status are packed: a tenth of the memory. `awake` unpacks them."""

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
        plain = {name: getattr(job, name) for name in _PLAIN}
        super().__init__(**plain, spec=None, status=None)
        packed: dict[str, Any] = {
            "_packed_spec": zlib.compress(spec.model_dump_json(by_alias=True, exclude_defaults=True).encode(), _QUICK),
            "_packed_status": zlib.compress(status.model_dump_json(by_alias=True, exclude_none=True).encode(), _QUICK),
            "facts": facts_of(status),
        }
        for name, value in packed.items():
            object.__setattr__(self, name, value)

    def awake(self) -> JobRecord:
        """The record with its spec and status."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        spec = DDPJobSpec.model_validate_json(zlib.decompress(self._packed_spec))
        status = DDPJobStatus.model_validate_json(zlib.decompress(self._packed_status))
        return JobRecord(**plain, spec=spec, status=status)


class JobStore(Store[JobRecord]):
    """The cache of jobs. Finished ones rest in it: iterating yields them as `RestingJob`, `get` wakes them up."""

    def get(self, namespace: str, name: str) -> JobRecord | None:
        """The job of this name, whole."""
        found = super().get(namespace, name)
        return found.awake() if isinstance(found, RestingJob) else found

    def _kept(self, record: JobRecord) -> JobRecord:
        return at_rest(record)


def at_rest(record: JobRecord) -> JobRecord:
    """The record in the form in which it is kept: packed if the job has finished."""
    status = record.status
    if (
        isinstance(record, RestingJob)
        or record.spec is None
        or status is None
        or not status.finished
        or record.unreadable
    ):
        return record
    return RestingJob(record, record.spec, status)


def facts_about(job: JobRecord) -> JobFacts:
    """What the status of a cached job says."""
    return job.facts if isinstance(job, RestingJob) else facts_of(job.status or _NEW)


_NEW: Final = DDPJobStatus()
"""What is known of a job without a status."""
