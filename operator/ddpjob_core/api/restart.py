"""spec.restart: what follows a failure."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ddpjob_core.api.base import ApiModel


class RestartAction(StrEnum):
    """What a failure that a rule matches leads to."""

    RESTART = "Restart"
    FAIL = "Fail"
    IGNORE = "Ignore"


class RestartRule(ApiModel):
    """What follows a certain kind of failure. All that is given must match."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.exitCodes) || has(self.signals) || has(self.reasons) || has(self.message)",
                    "message": "a rule needs something to match: exitCodes, signals, reasons or message",
                },
            ],
        },
    }

    action: RestartAction
    """Restart: the next attempt, counted. Fail: the job fails at once. Ignore: the next attempt, not counted."""
    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255)]] | None, Field(min_length=1, max_length=64)] = None
    """Exit codes of the failed worker process itself."""
    signals: Annotated[
        list[Annotated[str, Field(max_length=16, pattern=r"^SIG[A-Z0-9]+$")]] | None, Field(min_length=1, max_length=32)
    ] = None
    """Signals that ended the worker process, as SIGKILL."""
    reasons: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]] | None, Field(min_length=1, max_length=32)
    ] = None
    """Reasons or classes of status.failure, as OOMKilled, Evicted or DisruptionTarget."""
    message: Annotated[str | None, Field(min_length=1, max_length=256)] = None
    """A text that the failure's message or traceback contains."""


class Restart(ApiModel):
    """What happens after a failure: all pods of the attempt are replaced by those of the next one."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """How many times a failed job starts again before it counts as Failed. Preempted and evicted pods are not counted."""
    max_process_restarts: Annotated[int | None, Field(ge=0, le=1000)] = None
    """How many times torchrun restarts the worker processes inside running pods, in each attempt: 3 when left out, 0 with the static rendezvous, which cannot."""
    backoff_seconds: Annotated[int, Field(ge=0, le=3600)] = 1
    """Seconds before the next attempt; doubled with each restart in a row without a newer step."""
    max_backoff_seconds: Annotated[int, Field(ge=0, le=86400)] = 60
    """The most seconds before the next attempt."""
    window_seconds: Annotated[int | None, Field(ge=1, le=31536000)] = None
    """Only restarts of the last so many seconds count against maxRestarts; all of them when left out."""
    no_progress_limit: Annotated[int, Field(ge=0, le=1000)] = 3
    """The job fails after so many counted restarts in a row without a newer step, if it reports steps; 0 never."""
    rules: Annotated[list[RestartRule], Field(max_length=32)] = []
    """What follows which failure; the first rule that matches decides. Without one, disrupted pods (preempted, evicted, drained) are Ignore, a program that is not in the image is Fail (reason CannotStart), all else is Restart."""
