"""What a rank tells on /progress of itself: how far it is, and what it is doing."""

from datetime import datetime
from typing import Any

from ddpjob.observed import Activity, RankReport
from ddpjob.plan import PollTarget
from ddpjob.report import finite_number, whole_number


def parse_rank_report(raw: dict[str, Any], target: PollTarget, answered: datetime) -> RankReport:
    """A rank's report in an answer of /progress. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        target: who was asked.
        answered: when it answered.
    """
    return RankReport(
        attempt=target.attempt,
        rank=target.rank,
        ordinal=target.ordinal,
        answered=answered,
        step=whole_number(raw.get("step")),
        activity=_activity(raw.get("activity")),
        activity_seconds=finite_number(raw.get("activitySeconds")),
        seconds_since_step=finite_number(raw.get("secondsSinceStep")),
        process_restarts=max(0, whole_number(raw.get("processRestarts")) or 0),
    )


def _activity(value: object) -> Activity | None:
    try:
        return Activity(value) if isinstance(value, str) else None
    except ValueError:
        return None
