"""status.state: what the column STATE shows in place of the phase, where that alone would mislead.

In the form of a node's STATUS in kubectl, such as Ready,SchedulingDisabled.
"""

from typing import Final

from ddpjob_core.api.status import ConditionType, DDPJobStatus, Phase

_REJOINING: Final = "Rejoining"


def state_of(status: DDPJobStatus) -> str | None:
    """The phase with what it does not say; None if it says all."""
    if status.phase is Phase.SUCCEEDED and status.holds(ConditionType.SEPARATE_GROUPS):
        return f"{status.phase.value},{ConditionType.SEPARATE_GROUPS.value}"
    if status.phase is Phase.RUNNING and status.holds(ConditionType.RESIZING):
        lost = status.membership is not None and status.membership.rejoining is not None
        return f"{status.phase.value},{_REJOINING if lost else ConditionType.RESIZING.value}"
    return None
