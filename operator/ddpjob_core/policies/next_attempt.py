"""An attempt that is left before it failed: what becomes of the status."""

from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.policies.no_progress_limit import after_leaving


def in_next_attempt(status: DDPJobStatus, **changes: object) -> DDPJobStatus:
    """The status of a job whose next attempt has no pods yet, and is not counted as a restart.

    Args:
        status: in the attempt that is left.
        changes: further fields, or other values of these.
    """
    left = {
        "attempt": status.attempt + 1,
        "pods_created": False,
        "attempt_start_time": None,
        "membership": None,
        "restarts": after_leaving(status),
    }
    return status.model_copy(update=left | changes)
