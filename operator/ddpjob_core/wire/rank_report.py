"""What answers on /progress of a node: a rank, how far it is and what it is doing, or a launcher that waits."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.values import finite_number, whole_number

_LONGEST_STACK: Final = 2048
_LONGEST_MESSAGE: Final = 256


class Activity(StrEnum):
    """What a rank does at a moment."""

    STARTING = "starting"
    DATA = "data"
    STEP = "step"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank last answered on /progress, at the moment `answered`, by its own clock.

    `quiet_seconds` are those since its last sign of progress: a finished step, or a checkpoint or an evaluation that
    began or ended; `seconds_since_step` is None before its first step. `stack` is where a rank that hangs is.
    """

    attempt: int
    rank: int
    ordinal: int
    answered: datetime
    step: int | None = None
    activity: Activity | None = None
    activity_seconds: float | None = None
    seconds_since_step: float | None = None
    quiet_seconds: float | None = None
    stack: str | None = None
    process_restarts: int = 0


class WaitReason(StrEnum):
    """Why a node whose pod runs does not reach node 0."""

    NAME_NOT_RESOLVED = "NameNotResolved"
    """Its name server does not know node 0's name, or does not answer."""
    NODE_0_NOT_REACHED = "Node0NotReached"
    """Nothing answers at node 0's address and rendezvous port."""
    NODE_NOT_REACHED = "NodeNotReached"
    """Nothing answers at the address and port of a node that node 0 waits for, as it does under mpirun."""


@dataclass(frozen=True, slots=True)
class RendezvousWait:
    """What the launcher of a node says, at the moment `answered`, that waits for node 0."""

    attempt: int
    ordinal: int
    answered: datetime
    reason: WaitReason
    message: str


def parse_rank_report(raw: dict[str, Any], target: PollTarget, answered: datetime) -> RankReport:
    """A rank's report in an answer of /progress. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        target: who was asked.
        answered: when it answered.
    """
    return RankReport(
        attempt=target.attempt,
        rank=target.rank,
        ordinal=target.ordinal,
        answered=answered,
        step=whole_number(raw.get("step")),
        activity=_activity(raw.get("activity")),
        activity_seconds=finite_number(raw.get("activitySeconds")),
        seconds_since_step=finite_number(raw.get("secondsSinceStep")),
        quiet_seconds=finite_number(raw.get("quietSeconds")),
        stack=_stack(raw.get("stack")),
        process_restarts=max(0, whole_number(raw.get("processRestarts")) or 0),
    )


def parse_wait(raw: dict[str, Any], target: PollTarget, answered: datetime) -> RendezvousWait | None:
    """What a launcher says that waits for node 0; None where the answer is not one of a launcher.

    Args:
        raw: the answer's JSON object.
        target: who was asked.
        answered: when it answered.
    """
    told = raw.get("waiting")
    if not isinstance(told, dict):
        return None
    reason, message = told.get("reason"), told.get("message")
    known = next((kind for kind in WaitReason if kind.value == reason), None)
    if known is None or not isinstance(message, str):
        return None
    clean = "".join(character if character.isprintable() else " " for character in message[:_LONGEST_MESSAGE])
    return RendezvousWait(target.attempt, target.ordinal, answered, known, clean)


def _stack(value: object) -> str | None:
    return value.encode("utf-8", "replace").decode()[-_LONGEST_STACK:] if isinstance(value, str) and value else None


def _activity(value: object) -> Activity | None:
    try:
        return Activity(value) if isinstance(value, str) else None
    except ValueError:
        return None
