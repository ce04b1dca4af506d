"""The deadlines of a job: for its first step, and between two steps."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ddpjob_core.api.base import ApiModel

_LONGEST: Final = 31_536_000


class DeadlineAction(StrEnum):
    """What happens when a deadline passes."""

    WARN = "Warn"
    RESTART = "Restart"
    FAIL = "Fail"


class StartupDeadline(ApiModel):
    """Limit on the time from the start of an attempt to its first step."""

    seconds: Annotated[int, Field(ge=5, le=_LONGEST)]
    """Number of seconds from the creation of the attempt's pods to its first reported step, or, for a program that reports no steps, until all nodes are up."""
    action: DeadlineAction = DeadlineAction.FAIL
    """Warn: set a condition and emit an Event. Restart: start the next attempt, and count it against maxRestarts. Fail: fail the job."""


class ProgressDeadline(ApiModel):
    """Limit on the time between two steps."""

    seconds: Annotated[int, Field(ge=5, le=_LONGEST)] = 600
    """Number of seconds that the training may go without a newer step, and ten times that during an evaluation or a checkpoint. It does not apply to a program that reports no steps."""
    action: DeadlineAction = DeadlineAction.WARN
    """Warn: set the condition TrainingStalled and emit an Event. Restart: start the next attempt, and count it against maxRestarts. Fail: fail the job."""
