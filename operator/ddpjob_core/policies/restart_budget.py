"""spec.restart.maxRestarts and windowSeconds: how restarts are counted."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import DDPJobStatus, Restarts
from ddpjob_core.observations.restart_backoff import LONGEST_BRAKE, not_before
from ddpjob_core.policies.no_progress_limit import after_failure, after_leaving, progressed

_BRIEF: Final = timedelta(seconds=30)
"""Length up to which an attempt does not end a run of restarts that no budget limits, whatever it reports."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of spec.restart.maxRestarts is used, and whether all of it is."""

    used: int
    exhausted: bool


def budget_left(restarts: Restarts, spec: Restart, now: datetime) -> Budget:
    """The budget at this moment; with a window, only restarts within it count."""
    used = restarts.counted if spec.window_seconds is None else len(_inside(restarts, spec.window_seconds, now))
    return Budget(used, used >= spec.max_restarts)


def counted_restart(status: DDPJobStatus, spec: Restart, reason: str, now: datetime) -> Restarts:
    """The restarts after another one that counts.

    Args:
        status: of the attempt that has failed.
        spec: spec.restart.
        reason: of the failure.
        now: when it was decided.
    """
    before = status.restarts
    recent = None if spec.window_seconds is None else [*_inside(before, spec.window_seconds, now), now]
    # With a window the budget limits how many there are at a time, and not how many there are.
    unlimited = before.unlimited_in_a_row if spec.window_seconds is None else _unlimited_in_a_row(status, spec, now)
    return _another(after_failure(status), status, reason, now).model_copy(
        update={
            "counted": before.counted + 1,
            "without_progress": 0 if progressed(status) else before.without_progress + 1,
            "unlimited_in_a_row": unlimited,
            "recent_times": recent and recent[-spec.max_restarts :],
        }
    )


def ignored_restart(status: DDPJobStatus, spec: Restart, reason: str, now: datetime) -> Restarts:
    """The restarts after another one that does not count. See `counted_restart`."""
    return _another(after_leaving(status), status, reason, now).model_copy(
        update={"ignored": status.restarts.ignored + 1, "unlimited_in_a_row": _unlimited_in_a_row(status, spec, now)}
    )


def _another(restarts: Restarts, status: DDPJobStatus, reason: str, now: datetime) -> Restarts:
    in_a_row = 1 if progressed(status) else status.restarts.in_a_row + 1
    return restarts.model_copy(update={"in_a_row": in_a_row, "last_reason": reason, "last_time": now})


def _unlimited_in_a_row(status: DDPJobStatus, spec: Restart, now: datetime) -> int:
    # The time of its start may be that of an attempt before it.
    starts = [moment for moment in (status.attempt_start_time, not_before(status, spec)) if moment is not None]
    lasted = now - max(starts) if status.attempt_start_time is not None else timedelta()
    # Steps are what a program says: they do not make up for an attempt that was hardly there.
    ends_run = lasted >= LONGEST_BRAKE or (lasted >= _BRIEF and progressed(status))
    return 1 if ends_run else status.restarts.unlimited_in_a_row + 1


def _inside(restarts: Restarts, window: int, now: datetime) -> list[datetime]:
    return [moment for moment in restarts.recent_times or [] if moment > now - timedelta(seconds=window)]
