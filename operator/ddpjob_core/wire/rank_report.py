"""What answers on /progress of a node: a rank, with its step and activity, or a waiting launcher."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.values import finite_number, whole_number

_LONGEST_STACK: Final = 2048
_LONGEST_MESSAGE: Final = 256


class Activity(StrEnum):
    """What a rank is doing."""

    STARTING = "starting"
    DATA = "data"
    STEP = "step"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank last reported on /progress, received at `answered`.

    `quiet_seconds` are those since its last sign of progress: a completed step, or the start or end of a checkpoint or
    an evaluation. `seconds_since_step` is None before its first step. `stack` shows where a hanging rank is.
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
    """Why a node whose pod runs cannot reach node 0."""

    NAME_NOT_RESOLVED = "NameNotResolved"
    """Its name server does not know node 0's name, or does not answer."""
    NODE_0_NOT_REACHED = "Node0NotReached"
    """Nothing answers at node 0's address and rendezvous port."""
    NODE_NOT_REACHED = "NodeNotReached"
    """Nothing answers at the address and port of a node that node 0 waits for, as it does under mpirun."""


@dataclass(frozen=True, slots=True)
class RendezvousWait:
    """What the launcher of a node that waits for node 0 reported, received at `answered`."""

    attempt: int
    ordinal: int
    answered: datetime
    reason: WaitReason
    message: str


def parse_rank_report(raw: dict[str, Any], target: PollTarget, answered: datetime) -> RankReport:
    """A rank's report in an answer of /progress. Values of a wrong type count as missing.

    Args:
        raw: the answer's JSON object.
        target: who was polled.
        answered: when the answer was received.
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
    """What a launcher that waits for node 0 reports; None if the answer is not from a launcher.

    Args:
        raw: the answer's JSON object.
        target: who was polled.
        answered: when the answer was received.
    """
    waiting = raw.get("waiting")
    if not isinstance(waiting, dict):
        return None
    reason, message = waiting.get("reason"), waiting.get("message")
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
