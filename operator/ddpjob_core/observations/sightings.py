"""When the operator first saw what a pod shows, by its own clock.

An object's own times are those of other clocks: the API server's (deletionTimestamp), the scheduler's (the condition
PodScheduled), a node's (finishedAt). No duration is measured from them.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from ddpjob_core.observations.observed import ContainerState, PodRecord, Running, Terminated


def sighted(before: PodRecord | None, after: PodRecord, now: datetime) -> PodRecord:
    """The newer record with moments of the operator's clock: now, or what the record before it has for the same fact.

    Args:
        before: the record that was known, None where there was none.
        after: as the API server shows it.
        now: by the operator's clock.
    """
    known = before if before is not None and before.uid == after.uid else None
    deletion, trainer = _deletion(known, after, now), after.trainer
    unadmitted = _since(known.unadmitted_since if known is not None else None, after.unadmitted_since, now)
    unmounted = _since(known.unmounted_since if known is not None else None, after.unmounted_since, now)
    if isinstance(trainer, Running | Terminated):
        trainer = replace(trainer, seen=_seen(known.trainer if known is not None else None, trainer, now))
    failed = after.init_failure
    if failed is not None:
        earlier = known.init_failure.ended if known is not None and known.init_failure is not None else None
        failed = replace(failed, ended=replace(failed.ended, seen=_seen(earlier, failed.ended, now)))
    seen = (deletion, unadmitted, unmounted, trainer, failed)
    # Most pods show none of these facts, and a copy costs as much as the rest.
    if seen == (after.deletion_time, after.unadmitted_since, after.unmounted_since, after.trainer, after.init_failure):
        return after
    return replace(
        after,
        deletion_time=deletion,
        unadmitted_since=unadmitted,
        unmounted_since=unmounted,
        trainer=trainer,
        init_failure=failed,
    )


def _deletion(known: PodRecord | None, after: PodRecord, now: datetime) -> datetime | None:
    if after.deletion_time is None:
        return None
    due = now + timedelta(seconds=after.deletion_grace)
    # A second deletion may only shorten the grace period.
    return due if known is None or known.deletion_time is None else min(known.deletion_time, due)


def _since(known: datetime | None, after: datetime | None, now: datetime) -> datetime | None:
    return None if after is None else known or now


def _seen(known: ContainerState, trainer: Running | Terminated, now: datetime) -> datetime:
    same = isinstance(known, Running | Terminated) and type(known) is type(trainer)
    return known.seen or now if same and isinstance(known, Running | Terminated) else now
