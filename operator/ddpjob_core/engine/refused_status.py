"""A status that the API server refuses: what is accepted of it is written, and the job is decided on by all of it.

The status has been checked against the CRD's own schema, so this is for what that does not know: another version of the
CRD, or an admission policy. No job waits for a field that is only shown to be stopped, to finish or to be deleted. An
older CRD refuses nothing but drops the fields that it does not have: they are not written again and again.
"""

import copy
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.errors import ApiError, Forbidden, Invalid
from ddpjob_core.api.schemas import status_schema
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.api.text import one_line
from ddpjob_core.children.actions import Action, DeletePod
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.attempt import is_terminal
from ddpjob_core.observations.observed import JobRecord, PodRecord
from ddpjob_core.status.bounds import fit

TRY_AGAIN_AFTER: Final = timedelta(seconds=60)
"""How often a status that was refused is sent again, if nothing else changes it."""
DROPPED_AGAIN_AFTER: Final = timedelta(minutes=10)
"""The same for one of which fields were only dropped, as those of every job may be after an update of the operator."""
EPOCH: Final = "leaderEpoch"
_DECISIVE: Final = ("attempt", "podsCreated", "restarts", "conditions", EPOCH)
"""Fields that decisions are made by: they are not left out as a whole."""
_TRIES: Final = 3
_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LONGEST_MESSAGE: Final = 512

Put = Callable[[Json], Awaitable[Json]]
"""Writes a status; returns the job as the API server then has it."""


@dataclass(frozen=True, slots=True)
class RefusedStatus:
    """What this process knows of a job whose status was refused.

    Attributes:
        decided: the status that could not be written as it is.
        stored: the status that the API server has instead. As soon as it has another one, that one counts.
        message: what is refused or dropped, in one line.
        at: when.
        again_after: how long after that it is sent again.
    """

    decided: DDPJobStatus
    stored: DDPJobStatus | None
    message: str
    at: datetime
    again_after: timedelta = TRY_AGAIN_AFTER


@dataclass(frozen=True, slots=True)
class Written:
    """What has become of a status.

    Attributes:
        answer: the job as the API server then has it, None if nothing was accepted.
        problem: what it refuses or drops, in one line, "" for nothing.
        again_after: how long to wait with the same status.
    """

    answer: Json | None
    problem: str = ""
    again_after: timedelta = TRY_AGAIN_AFTER


def as_decided(job: JobRecord, refused: RefusedStatus | None) -> JobRecord:
    """The job with the status that was decided, where the API server has only a part of it."""
    return job if refused is None or job.status != refused.stored else replace(job, status=refused.decided)


def without_losing_the_end(
    actions: Sequence[Action], refused: RefusedStatus | None, pods: Iterable[PodRecord]
) -> tuple[Action, ...]:
    """The actions, without deletions of ended pods of a job whose end is known to this process alone.

    Another process has only these pods to see by that the job has ended: without them it would train once more.
    """
    known = refused is None or not refused.decided.finished or (refused.stored is not None and refused.stored.finished)
    ended = frozenset[str]() if known else frozenset(pod.uid for pod in pods if is_terminal(pod))
    return tuple(action for action in actions if not (isinstance(action, DeletePod) and action.uid in ended))


async def write_accepted(status: DDPJobStatus, put: Put) -> Written:
    """Write a status, or as much of it as the API server accepts.

    Raises:
        ApiError: it was not written for another reason, or a leader of a later term has written the one before.
    """
    wire: Json | None = status.to_wire()
    refused: list[str] = []
    refusal: ApiError | None = None
    for _ in range(1 + _TRIES):
        if wire is None:
            break
        try:
            answer = await put(wire)
            if refused:
                return Written(answer, _sentence(refused, refusal))
            dropped = dropped_fields(wire, answer.get("status"), "status")
            return Written(answer, _dropped(dropped), DROPPED_AGAIN_AFTER) if dropped else Written(answer)
        except (Invalid, Forbidden) as failure:
            if EPOCH in str(failure):
                raise
            refusal, paths = failure, paths_of(failure)
            refused += [path for path in paths if path not in refused]
            wire = without(wire, paths)
    return Written(None, _sentence([], refusal))


def dropped_fields(sent: object, stored: object, path: str) -> list[str]:
    """The fields that were sent and are not in what is stored."""
    if isinstance(sent, dict):
        known = stored if isinstance(stored, dict) else {}
        parts = ((each, known.get(name), f"{path}.{name}", name in known) for name, each in sent.items())
    elif isinstance(sent, list):
        items = stored if isinstance(stored, list) and len(stored) == len(sent) else sent
        parts = ((each, items[index], f"{path}[{index}]", True) for index, each in enumerate(sent))
    else:
        return []
    return [
        name for each, kept, where, there in parts for name in (dropped_fields(each, kept, where) if there else [where])
    ]


def without(status: Json, paths: Iterable[str]) -> Json | None:
    """The status without the fields at these paths, and without what cannot be without them.

    None if there is no such path, or if decisions are made by one of them.
    """
    # The last item of a list first: its removal moves those behind it.
    places = sorted((_place(path) for path in paths), key=lambda place: [str(part).zfill(8) for part in place])[::-1]
    if not places or any(not place or (len(place) == 1 and place[0] in _DECISIVE) for place in places):
        return None
    kept = copy.deepcopy(status)
    for place in places:
        _remove(kept, place)
    fitted: Json | None = fit(kept, status_schema())
    return fitted if fitted != status else None


def _remove(value: object, place: tuple[str | int, ...]) -> None:
    head, rest = place[0], place[1:]
    if isinstance(value, dict) and isinstance(head, str):
        if rest:
            _remove(value.get(head), rest)
        else:
            value.pop(head, None)
    elif isinstance(value, list) and isinstance(head, int) and head < len(value):
        # An entry is shown as a whole or not at all.
        value.pop(head)


def _place(path: str) -> tuple[str | int, ...]:
    """The keys and indexes that lead to a field: `status.conditions[3].type` is conditions, 3, type."""
    parts: list[str | int] = [int(index) if index else name for name, index in _PART.findall(path)]
    return tuple(parts[1:]) if parts[:1] == ["status"] else ()


def paths_of(refusal: ApiError) -> list[str]:
    """The fields that the API server names; it also names none, for the rules that it could not check then."""
    return [path for path, _ in refusal.fields if path] if isinstance(refusal, Invalid) else []


def _dropped(fields: Iterable[str]) -> str:
    text = f"the API server drops {', '.join(fields)}, which its CustomResourceDefinition does not have"
    return one_line(text, _LONGEST_MESSAGE)


def _sentence(refused: Iterable[str], refusal: ApiError | None) -> str:
    if refusal is None:
        return ""
    # Without the values, which change while the reason stays the same.
    named = ", ".join(refused)
    text = f"the API server refuses {named}, which are not shown" if named else f"the API server refuses it: {refusal}"
    return one_line(text, _LONGEST_MESSAGE)
