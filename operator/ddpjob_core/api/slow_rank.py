"""spec.slowRank: what happens when a rank slows down the others."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ddpjob_core.api.base import ApiModel

_LONGEST: Final = 31_536_000


class SlowRankAction(StrEnum):
    """What happens when a rank slows down the others."""

    WARN = "Warn"
    REPLACE = "Replace"


class SlowRank(ApiModel):
    """What happens when status.slowest names a rank."""

    action: SlowRankAction = SlowRankAction.WARN
    """Warn: name it in status.slowest. Replace: also ask the ranks to save, and start the next attempt, whose pods prefer other Kubernetes nodes than that of the rank. It is not counted as a restart, and happens once per job. The job must have saved a checkpoint, its pods must not all run on the same node, and what takes the rank longer must not be the checkpoints."""
    seconds: Annotated[int, Field(ge=5, le=_LONGEST)] = 300
    """Number of seconds for which status.slowest has to name the same rank before it is replaced. A job that has less time left than that goes on as it is."""
