"""spec.restart.noProgressLimit: whether an attempt came further than those before it.

A failed attempt has come further if it made a step beyond the one at which the last failed attempt ended, or saved a
newer checkpoint. One that was left for another reason did not fail at its last step: if it came further, the next one
only has to get beyond the checkpoint that it starts from.
"""

from ddpjob_core.api.status import DDPJobStatus, Restarts


def progressed(status: DDPJobStatus) -> bool:
    """Whether the current attempt has come further."""
    step, saved = _reached(status)
    restarts = status.restarts
    newer = saved is not None and saved > (restarts.last_checkpoint_step or 0)
    return newer or step > (restarts.last_furthest_step or 0)


def after_failure(status: DDPJobStatus) -> Restarts:
    """The restarts with what the next attempt has to reach, the current one having failed."""
    step, saved = _reached(status)
    return _with_marks(status, max(step, saved or 0)) if progressed(status) else status.restarts


def after_leaving(status: DDPJobStatus) -> Restarts:
    """The restarts with what the next attempt has to reach, the current one having been left before it failed.

    That ends a run of failures if it had come further.
    """
    if not progressed(status):
        return status.restarts
    ended = {"in_a_row": 0, "without_progress": 0, "unlimited_in_a_row": 0}
    _, saved = _reached(status)
    return _with_marks(status, saved or 0).model_copy(update=ended)


def _with_marks(status: DDPJobStatus, step: int) -> Restarts:
    _, saved = _reached(status)
    marks = {"last_furthest_step": step, "last_checkpoint_step": saved or status.restarts.last_checkpoint_step}
    return status.restarts.model_copy(update=marks)


def _reached(status: DDPJobStatus) -> tuple[int, int | None]:
    """The last step and the newest checkpoint of the current attempt."""
    progress = status.progress
    if progress is None or progress.attempt not in (None, status.attempt):
        return 0, None
    return progress.step or 0, progress.last_checkpoint_step
