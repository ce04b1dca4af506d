"""spec.restart: how a job restarts after a failure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ddpjob_core.api.base import ApiModel

DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Condition of a pod that Kubernetes removes for reasons outside the pod."""
CANNOT_START: Final = "CannotStart"
"""Reason of a failure, and of a failed job, whose program cannot even begin: each attempt would end the same way."""
WAITING_FOR_PODS: Final = "WaitingForPods"
"""Reason of the end of an attempt whose nodes have given up waiting for pods that no node or no quota has room for."""


class RestartAction(StrEnum):
    """What happens when a rule matches a failure."""

    RESTART = "Restart"
    FAIL = "Fail"
    IGNORE = "Ignore"


RULE_CONDITIONS: Final = ("exitCodes", "signals", "reasons", "message")
"""Fields of a rule of which at least one is set."""
NO_CONDITION: Final = "set at least one of exitCodes, signals, reasons or message for the rule to match"


class RestartRule(ApiModel):
    """What happens after failures of one kind. A failure must match every field that is set."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": " || ".join(f"has(self.{name})" for name in RULE_CONDITIONS),
                    "message": NO_CONDITION,
                },
            ],
        },
    }

    action: RestartAction
    """Restart: start the next attempt, and count it against maxRestarts. Fail: fail the job immediately. Ignore: start the next attempt without counting it."""
    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255)]] | None, Field(min_length=1, max_length=64)] = None
    """Exit codes of the failed worker process itself, not of its launcher."""
    signals: Annotated[
        list[Annotated[str, Field(max_length=16, pattern=r"^SIG[A-Z0-9]+$")]] | None, Field(min_length=1, max_length=32)
    ] = None
    """Signals that ended the worker process, such as SIGKILL."""
    reasons: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]] | None, Field(min_length=1, max_length=32)
    ] = None
    """Values of status.failure.reason or status.failure.class, such as OOMKilled, Evicted or DisruptionTarget."""
    message: Annotated[str | None, Field(min_length=1, max_length=256)] = None
    """Text that the message or traceback of the failure contains."""


@dataclass(frozen=True, slots=True)
class DefaultRule:
    """A rule of every job, asked after the job's own."""

    rule: RestartRule
    failures: str
    """Human-readable description of the failures that it covers."""
    because: str
    reason: str = "FailedByRule"
    """Reason of the condition Failed, where the rule says Fail."""


DEFAULT_RULES: Final = (
    DefaultRule(
        RestartRule(action=RestartAction.IGNORE, reasons=[DISRUPTION_TARGET]),
        failures="disrupted pods (preempted, evicted, drained)",
        because="the program did not cause it",
    ),
    DefaultRule(
        RestartRule(action=RestartAction.IGNORE, reasons=[WAITING_FOR_PODS]),
        failures="nodes that gave up waiting for pods without a node or a quota (reason WaitingForPods)",
        because="the program could not begin",
    ),
    DefaultRule(
        RestartRule(action=RestartAction.FAIL, reasons=[CANNOT_START]),
        failures="a program that cannot start, because it or a module is missing or not valid Python, or it rejects its arguments (reason CannotStart)",
        because="another attempt would end the same way",
        reason=CANNOT_START,
    ),
    DefaultRule(
        RestartRule(action=RestartAction.RESTART),
        failures="everything else",
        because="the next attempt continues from the last checkpoint",
    ),
)
"""What happens after a failure that no rule of the job matches. The last rule matches every failure."""


class Restart(ApiModel):
    """How the job restarts after a failure. A restart replaces all pods of the attempt by those of the next one."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """Number of restarts before the job is marked Failed. Restarts after a preemption or an eviction are not counted."""
    max_process_restarts: Annotated[int | None, Field(ge=0, le=1000)] = None
    """Number of times per attempt, and from each change of size on, that the worker processes restart inside running pods, or that one that was killed is replaced. Defaults to 3, and to 0 where the launcher or the static rendezvous cannot do it."""
    spares: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of processes per pod that wait with torch imported, each to take the place of a worker that is killed. Each needs the memory of an imported torch. Only with launcher torchrun and rendezvous c10d, and for programs whose ranks keep their processes when one is killed."""
    backoff_seconds: Annotated[int, Field(ge=0, le=3600)] = 1
    """Number of seconds before the next attempt starts. It doubles with each restart in a row without a newer step or checkpoint."""
    max_backoff_seconds: Annotated[int, Field(ge=0, le=86400)] = 60
    """Maximum number of seconds before the next attempt starts. After short attempts that no budget limits, such as those that a rule ignores, the wait grows up to 5 minutes whatever is set here."""
    window_seconds: Annotated[int | None, Field(ge=1, le=31536000)] = None
    """Number of seconds for which a restart counts against maxRestarts. Defaults to forever."""
    no_progress_limit: Annotated[int, Field(ge=0, le=1000)] = 3
    """Number of counted restarts in a row without a newer step or checkpoint after which the job fails, if the program reports steps. 0 disables the limit."""
    rules: Annotated[
        list[RestartRule],
        Field(
            max_length=32,
            description="What happens after which failure. The first rule that matches applies. If no rule matches, the "
            "default rules apply: "
            + ", ".join(f"{known.rule.action} for {known.failures}" for known in DEFAULT_RULES)
            + ".",
        ),
    ] = []
