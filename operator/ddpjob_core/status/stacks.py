"""status.stacks: where the ranks of a stalled training were."""

from ddpjob_core.api.status import MAX_STACKS, DDPJobStatus, Stack
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import find_stall


def kept_stacks(situation: Situation, status: DDPJobStatus) -> list[Stack] | None:
    """The stacks of the stall that is seen now, else those of the last one.

    They are written once for each stall, and again only if a rank that the others wait for shows its stack later.
    """
    known, stall = status.stacks, find_stall(situation)
    if stall is None:
        return known
    culprits = [report for report in stall.culprits if report.stack]
    others = [report for report in stall.answers if report.stack and report not in culprits]
    shown = [
        Stack(attempt=report.attempt, rank=report.rank, ordinal=report.ordinal, step=report.step, text=report.stack)
        for report in (*culprits, *others)[:MAX_STACKS]
        if report.stack
    ]
    return shown if shown and not _is_same_stall(known, shown, len(culprits)) else known


def _is_same_stall(known: list[Stack] | None, shown: list[Stack], culprits: int) -> bool:
    """Whether what matters of a stall is known: the stacks of those that the others wait for, else any of them."""
    of = {(stack.attempt, stack.rank, stack.step) for stack in known or ()}
    found = [(stack.attempt, stack.rank, stack.step) in of for stack in shown]
    return all(found[:culprits]) if culprits else any(found)
