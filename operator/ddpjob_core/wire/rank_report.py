"""What answers on /progress of a node: a rank, with its step and activity, or a waiting launcher."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from ddpjob_core.wire.fields import MOST_SECONDS, MOST_STEPS, Fields
from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.report import MOST_RESTARTS

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


def parse_rank_report(fields: Fields, target: PollTarget, answered: datetime) -> RankReport:
    """A rank's report in an answer of /progress. Values of a wrong type or range count as missing.

    Args:
        fields: the answer's JSON object.
        target: who was polled.
        answered: when the answer was received.
    """
    return RankReport(
        attempt=target.attempt,
        rank=target.rank,
        ordinal=target.ordinal,
        answered=answered,
        step=fields.whole("step", MOST_STEPS),
        activity=fields.choice("activity", Activity),
        activity_seconds=fields.number("activitySeconds", MOST_SECONDS),
        seconds_since_step=fields.number("secondsSinceStep", MOST_SECONDS),
        quiet_seconds=fields.number("quietSeconds", MOST_SECONDS),
        stack=fields.lines("stack", _LONGEST_STACK),
        process_restarts=fields.whole("processRestarts", MOST_RESTARTS) or 0,
    )


def parse_wait(fields: Fields, target: PollTarget, answered: datetime) -> RendezvousWait | None:
    """What a launcher that waits for node 0 reports; None if the answer is not from a launcher.

    Args:
        fields: the answer's JSON object.
        target: who was polled.
        answered: when the answer was received.
    """
    waiting = fields.inner("waiting")
    if waiting is None:
        return None
    reason, message = waiting.choice("reason", WaitReason), waiting.line("message", _LONGEST_MESSAGE)
    if reason is None or message is None:
        return None
    return RendezvousWait(target.attempt, target.ordinal, answered, reason, message)
