"""Events that people need, derived from the change between two statuses: none can repeat, because a change cannot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ddpjob_core.api.display import format_seconds
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus, Membership, Rejoining, Replaced
from ddpjob_core.observations.observed import RejectionKind
from ddpjob_core.observations.spec_change import SpecChange

_BLOCKED: Final = tuple(kind for kind in RejectionKind if kind is not RejectionKind.BEING_DELETED)


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the job, posted once, after the status that it is about has been written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events_between(
    old: DDPJobStatus | None,
    new: DDPJobStatus,
    *,
    max_restarts: int = 0,
    remarks: Sequence[Event] = (),
    change: SpecChange | None = None,
) -> tuple[Event, ...]:
    """The events of a status change; a job that succeeds has PodsCreated, Training and Succeeded.

    Args:
        old: the status before, None for none.
        new: the status that has been written.
        max_restarts: spec.restart.maxRestarts.
        remarks: said once, with the first pods.
        change: what the newest generation of the spec has changed, where it is known.
    """
    before = old or DDPJobStatus()
    events = [*_changes(before, new, change), *_restarts(before, new, max_restarts)]
    blocked = _newly(before, new, ConditionType.PODS_SCHEDULED, "False")
    if blocked is not None and blocked.reason in _BLOCKED:
        events.append(Event("Warning", blocked.reason, blocked.message))
    if new.pods_created and not (before.pods_created and before.attempt == new.attempt) and new.nodes is not None:
        desired = new.nodes.desired
        events.append(
            Event(
                "Normal",
                "PodsCreated",
                f"created {desired} pod{'s' if desired > 1 else ''} for attempt {new.attempt}, "
                f"{new.procs_per_node} process{'es' if new.procs_per_node != 1 else ''} each",
            ),
        )
        events.extend(remarks if new.attempt == 0 else ())
    if new.replaced is not None and before.replaced is None:
        events.append(Event("Warning", "Replaced", _replaced(new.replaced, new.attempt)))
    resized = _resized(before.membership, new.membership)
    if resized:
        events.append(Event("Normal", "Resized", resized))
    if new.first_step_time is not None and before.first_step_time is None:
        events.append(Event("Normal", "Training", _first_step(new)))
    mended = _newly(before, new, ConditionType.FAILED, "False")
    if mended is not None:
        events.append(Event("Normal", mended.reason, mended.message))
    for kind, level in (
        (ConditionType.SUSPENDED, "Normal"),
        (ConditionType.SUCCEEDED, "Normal"),
        (ConditionType.SEPARATE_GROUPS, "Warning"),
        (ConditionType.FAILED, "Warning"),
    ):
        condition = _newly(before, new, kind, "True")
        if condition is not None:
            reason = kind.value if kind is not ConditionType.FAILED else condition.reason
            events.append(Event("Warning" if level == "Warning" else "Normal", reason, condition.message))
    return tuple(events)


def _changes(before: DDPJobStatus, new: DDPJobStatus, change: SpecChange | None) -> list[Event]:
    seen, now = before.observed_generation, new.observed_generation
    if seen is None or now is None or now <= seen:
        return []
    return [Event("Normal", "Edited", (change or SpecChange()).sentence(now))]


def _restarts(before: DDPJobStatus, new: DDPJobStatus, max_restarts: int) -> list[Event]:
    events: list[Event] = []
    lost = _lost(before, new, max_restarts)
    if lost is not None:
        events.append(lost)
    elif new.restarts.counted > before.restarts.counted and new.failure is not None:
        events.append(
            Event(
                "Warning",
                "Restarting",
                f"{new.failure.message}; attempt {new.attempt} starts "
                f"(restart {new.restarts.counted} of {max_restarts} with new pods)",
            ),
        )
    elif new.restarts.ignored > before.restarts.ignored and new.failure is not None:
        message = f"{new.failure.message}; attempt {new.attempt} starts (not counted)"
        events.append(Event("Warning", "Restarting", message))
    if new.restarts.process > before.restarts.process:
        events.append(
            Event(
                "Warning",
                "ProcessesRestarted",
                "a worker process failed, and torchrun restarted the workers inside the running pods "
                f"({new.restarts.process} process restarts in all attempts so far); the pods' logs show why",
            )
        )
    stalled = _newly(before, new, ConditionType.TRAINING_STALLED, "True")
    if stalled is not None:
        events.append(Event("Warning", ConditionType.TRAINING_STALLED.value, stalled.message))
    refused = _newly(before, new, ConditionType.STATUS_REFUSED, "True")
    if refused is not None:
        events.append(Event("Warning", ConditionType.STATUS_REFUSED.value, refused.message))
    late = _newly(before, new, ConditionType.TRAINING, "False")
    if late is not None and late.reason == "StartupDeadlineExceeded" and not new.finished:
        events.append(Event("Warning", late.reason, late.message))
    return events


def _lost(before: DDPJobStatus, new: DDPJobStatus, max_restarts: int) -> Event | None:
    """What becomes of nodes that were lost: others wait for them, go on with them, or start again with them."""
    known = _rejoining(before)
    if before.attempt != new.attempt:
        # It was counted when the node was lost.
        if known is None or new.failure is None or before.restarts != new.restarts:
            return None
        return Event("Warning", "Restarting", f"{new.failure.message}; attempt {new.attempt} starts (counted already)")
    found = _rejoining(new)
    if known is None and found is not None and new.failure is not None:
        counted = new.restarts.counted > before.restarts.counted
        how = f"restart {new.restarts.counted} of {max_restarts}" if counted else "not counted"
        message = f"{new.failure.message}; another pod takes its place, and the other nodes go on with it ({how})"
        return Event("Warning", "NodeLost", message)
    # With another size the ranks go on without it.
    if known is not None and found is None and not new.finished and not _resized(before.membership, new.membership):
        return Event("Normal", "NodeRejoined", "the ranks go on with the pods that took the places of lost ones")
    return None


def _rejoining(status: DDPJobStatus) -> Rejoining | None:
    membership = status.membership
    return None if membership is None or membership.attempt != status.attempt else membership.rejoining


def _replaced(replaced: Replaced, attempt: int) -> str:
    return (
        f"rank {replaced.rank} on node {replaced.node_name} took {replaced.factor:g} times as long as the others "
        f"({replaced.what}): attempt {attempt} starts on other nodes if they have room (not counted as a restart)"
    )


def _resized(before: Membership | None, new: Membership | None) -> str:
    if before is None or new is None or before.attempt != new.attempt or before.nodes == new.nodes:
        return ""
    return f"the training goes on with {new.nodes} node{'s' if new.nodes != 1 else ''} instead of {before.nodes}"


def _newly(old: DDPJobStatus, new: DDPJobStatus, kind: ConditionType, status: str) -> Condition | None:
    before, after = old.condition(kind), new.condition(kind)
    if after is None or after.status != status:
        return None
    same = before is not None and (before.status, before.reason) == (after.status, after.reason)
    return None if same else after


def _first_step(status: DDPJobStatus) -> str:
    if status.start_time is None or status.first_step_time is None:
        return "rank 0 reported its first step"
    seconds = int((status.first_step_time - status.start_time).total_seconds())
    return f"rank 0 reported its first step {format_seconds(seconds)} after the pods were created"
