"""The reasons of the condition Suspended: whether a job is stopping, suspended or resumed.

The condition carries the intent (False/Stopping, True/Suspended), so that pods that end because they were asked to are
never taken for failed ones.
"""

from typing import Final

from ddpjob_core.api.status import ConditionType, DDPJobStatus

STOPPING: Final = "Stopping"
SUSPENDED: Final = "Suspended"
RESUMED: Final = "Resumed"


def is_stopping(status: DDPJobStatus) -> bool:
    """Whether pods were asked to stop and not all of them have."""
    condition = status.condition(ConditionType.SUSPENDED)
    return condition is not None and condition.status == "False" and condition.reason == STOPPING
