"""spec.restart.maxRestarts, windowSeconds and noProgressLimit: how restarts are counted."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import Restarts


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of spec.restart.maxRestarts is used, and whether all of it is."""

    used: int
    exhausted: bool


def budget_left(restarts: Restarts, spec: Restart, now: datetime) -> Budget:
    """The budget at this moment; with a window, only restarts within it count."""
    used = restarts.counted if spec.window_seconds is None else len(_inside(restarts, spec.window_seconds, now))
    return Budget(used, used >= spec.max_restarts)


def counted_restart(restarts: Restarts, spec: Restart, reason: str, now: datetime) -> Restarts:
    """The restarts after another one that counts."""
    recent = None if spec.window_seconds is None else [*_inside(restarts, spec.window_seconds, now), now]
    return _after(restarts, reason, now).model_copy(
        update={
            "counted": restarts.counted + 1,
            "without_progress": 0 if _progressed(restarts) else restarts.without_progress + 1,
            "recent_times": recent and recent[-spec.max_restarts :],
        }
    )


def ignored_restart(restarts: Restarts, reason: str, now: datetime) -> Restarts:
    """The restarts after another one that does not count."""
    return _after(restarts, reason, now).model_copy(update={"ignored": restarts.ignored + 1})


def _after(restarts: Restarts, reason: str, now: datetime) -> Restarts:
    return restarts.model_copy(
        update={
            "in_a_row": 1 if _progressed(restarts) else restarts.in_a_row + 1,
            "last_furthest_step": restarts.furthest_step,
            "last_reason": reason,
            "last_time": now,
        }
    )


def _progressed(restarts: Restarts) -> bool:
    """Whether a step beyond all earlier ones was made since the last restart."""
    furthest, before = restarts.furthest_step, restarts.last_furthest_step
    return furthest is not None and (before is None or furthest > before)


def _inside(restarts: Restarts, window: int, now: datetime) -> list[datetime]:
    return [moment for moment in restarts.recent_times or [] if moment > now - timedelta(seconds=window)]
