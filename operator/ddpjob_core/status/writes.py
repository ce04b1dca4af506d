"""When a changed status is written: a transition immediately, everything else at most every five seconds per job."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.status import DDPJobStatus

LEAST_INTERVAL: Final = timedelta(seconds=5)
NEWER_REPORT: Final = timedelta(seconds=2)
"""How long progress that may be written waits for the next report, usually that of the next poll: a fresh report stays
newer until the next write than the last one before that moment would."""


def differs(old: DDPJobStatus | None, new: DDPJobStatus) -> bool:
    """Whether a status differs from the old one in more than the time at which progress was read."""
    return old is None or _shown(old) != _shown(new)


def _shown(status: DDPJobStatus) -> DDPJobStatus:
    if status.progress is None:
        return status
    return status.model_copy(update={"progress": status.progress.model_copy(update={"observed_time": None})})


def may_write_at(last_write: datetime | None, now: datetime) -> datetime:
    """The earliest moment at which a change other than a transition may be written."""
    return now if last_write is None else max(now, last_write + LEAST_INTERVAL)


def recheck_at(old: DDPJobStatus | None, new: DDPJobStatus, due: datetime) -> datetime:
    """When a change that may be written at `due` is looked at again, if nothing wakes the job earlier."""
    return due + NEWER_REPORT if old is not None and _differ_in_progress_alone(old, new) else due


def _differ_in_progress_alone(old: DDPJobStatus, new: DDPJobStatus) -> bool:
    restarts = old.restarts.model_copy(update={"furthest_step": new.restarts.furthest_step})
    reported = {"progress": new.progress, "summary": new.summary, "restarts": restarts, "slowest": new.slowest}
    return old.model_copy(update=reported) == new
