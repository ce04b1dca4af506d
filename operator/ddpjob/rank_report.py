"""What a rank tells on /progress of itself: how far it is, and what it is doing."""

from datetime import datetime
from typing import Any, Final

from ddpjob.observed import Activity, RankReport
from ddpjob.plan import PollTarget
from ddpjob.report import finite_number, whole_number

_LONGEST_STACK: Final = 2048


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
        quiet_seconds=finite_number(raw.get("quietSeconds")),
        stack=_stack(raw.get("stack")),
        process_restarts=max(0, whole_number(raw.get("processRestarts")) or 0),
    )


def _stack(value: object) -> str | None:
    return value.encode("utf-8", "replace").decode()[-_LONGEST_STACK:] if isinstance(value, str) and value else None


def _activity(value: object) -> Activity | None:
    try:
        return Activity(value) if isinstance(value, str) else None
    except ValueError:
        return None
