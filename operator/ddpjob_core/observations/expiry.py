"""When a finished job has outlived spec.ttlSecondsAfterFinished."""

from datetime import datetime, timedelta

from ddpjob_core.observations.situation import Situation


def expires_at(situation: Situation) -> datetime | None:
    """When the job is to be deleted; None where it has not finished or is kept for good."""
    status, seconds = situation.status, situation.spec.ttl_seconds_after_finished
    if not status.finished or seconds is None or status.completion_time is None:
        return None
    return status.completion_time + timedelta(seconds=seconds)
