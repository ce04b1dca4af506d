"""When a changed status is written: a transition at once, everything else at most once in five seconds a job."""

from datetime import datetime, timedelta
from typing import Final

from ddpjob.api.status import DDPJobStatus

LEAST_INTERVAL: Final = timedelta(seconds=5)


def differs(old: DDPJobStatus | None, new: DDPJobStatus) -> bool:
    """Whether a status shows anything that the old one does not. When progress was read is not worth a write alone."""
    return old is None or _shown(old) != _shown(new)


def _shown(status: DDPJobStatus) -> DDPJobStatus:
    if status.progress is None:
        return status
    return status.model_copy(update={"progress": status.progress.model_copy(update={"observed_time": None})})


def may_write_at(last_write: datetime | None, now: datetime) -> datetime:
    """The earliest moment at which a change that is no transition may be written."""
    return now if last_write is None else max(now, last_write + LEAST_INTERVAL)
