"""The times of a status: they are of the clock of the operator that wrote it, which may have been another one."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.observed import JobRecord, Observed

_TIMES: Final = ("start_time", "attempt_start_time", "first_step_time", "completion_time")


def job_as_led(observed: Observed) -> JobRecord:
    """The job, with no time in its status that is still to come by the clock of this process.

    Until this process has written the status, a time after the takeover counts as the moment of the takeover. Otherwise
    a wait would last as much longer as the clock of the operator before was fast.
    """
    job, latest = observed.job, observed.now
    if observed.last_status_write is None and observed.taken_over is not None:
        latest = min(observed.taken_over, latest)
    return job if job.status is None else replace(job, status=none_later(job.status, latest))


def none_later(status: DDPJobStatus, latest: datetime) -> DDPJobStatus:
    """The status with every later time of an operator replaced by the latest one."""
    latest = latest.replace(microsecond=0)
    changed: dict[str, Any] = {
        name: latest for name in _TIMES if (moment := getattr(status, name)) is not None and moment > latest
    }
    if any(condition.last_transition_time > latest for condition in status.conditions):
        changed["conditions"] = [
            condition.model_copy(update={"last_transition_time": min(condition.last_transition_time, latest)})
            for condition in status.conditions
        ]
    membership = status.membership
    if membership is not None and membership.time is not None and membership.time > latest:
        membership = changed["membership"] = membership.model_copy(update={"time": latest})
    if membership is not None and membership.rejoining is not None and membership.rejoining.time > latest:
        lost = membership.rejoining.model_copy(update={"time": latest})
        membership = changed["membership"] = membership.model_copy(update={"rejoining": lost})
    spares = None if membership is None else membership.spares
    if membership is not None and spares is not None and spares.time is not None and spares.time > latest:
        spares = spares.model_copy(update={"time": latest})
        changed["membership"] = membership.model_copy(update={"spares": spares})
    for name in ("slowest", "replaced"):
        named = getattr(status, name)
        if named is not None and named.time > latest:
            changed[name] = named.model_copy(update={"time": latest})
    restarts = status.restarts
    moments = [*(restarts.recent_times or []), *([restarts.last_time] if restarts.last_time is not None else [])]
    if any(moment > latest for moment in moments):
        recent = None if restarts.recent_times is None else [min(moment, latest) for moment in restarts.recent_times]
        last = None if restarts.last_time is None else min(restarts.last_time, latest)
        changed["restarts"] = restarts.model_copy(update={"recent_times": recent, "last_time": last})
    progress = status.progress
    if progress is not None and progress.observed_time is not None and progress.observed_time > latest:
        changed["progress"] = progress.model_copy(update={"observed_time": latest})
    return status.model_copy(update=changed) if changed else status
