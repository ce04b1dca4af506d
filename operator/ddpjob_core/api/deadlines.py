"""The deadlines of a job: to its first step and between two steps."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ddpjob_core.api.base import ApiModel

_LONGEST: Final = 31_536_000


class DeadlineAction(StrEnum):
    """What happens when a deadline has passed."""

    WARN = "Warn"
    RESTART = "Restart"
    FAIL = "Fail"


class StartupDeadline(ApiModel):
    """How long an attempt may take to its first step."""

    seconds: Annotated[int, Field(ge=5, le=_LONGEST)]
    """Seconds from the attempt's pods being made to its first reported step; for a program that reports none, until all nodes are up."""
    action: DeadlineAction = DeadlineAction.FAIL
    """Warn: a condition and an Event. Restart: the next attempt, counted. Fail: the job fails."""


class ProgressDeadline(ApiModel):
    """How long a training may go without a newer step."""

    seconds: Annotated[int, Field(ge=5, le=_LONGEST)] = 600
    """Seconds without a newer step; ten times as many during an evaluation or a checkpoint. A program that reports no steps is never judged."""
    action: DeadlineAction = DeadlineAction.WARN
    """Warn: the condition TrainingStalled and an Event. Restart: the next attempt, counted. Fail: the job fails."""
