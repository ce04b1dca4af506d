"""status.stacks: where the ranks of a stalled training were."""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.status import MAX_STACKS, ConditionType, DDPJobStatus, Stack
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import find_stall

_SETTLES: Final = timedelta(minutes=1)
"""How long the stacks of a stall follow those that the others wait for."""
_AGAIN: Final = timedelta(seconds=10)
"""For how long they do so again later: long enough for a look."""


def kept_stacks(situation: Situation, status: DDPJobStatus) -> list[Stack] | None:
    """The stacks of the stall that is seen now, else those of the last one.

    They are written once for each stall, and again if a rank that the others wait for shows its stack later. That may
    be another rank at each look: they change only in the first minute of a stall, and around its minutes 2, 4, 8 etc.
    """
    known, stall = status.stacks, find_stall(situation)
    if stall is None or not _may_change(situation, known):
        return known
    culprits = [report for report in stall.culprits if report.stack]
    others = [report for report in stall.answers if report.stack and report not in culprits]
    shown = [
        Stack(attempt=report.attempt, rank=report.rank, ordinal=report.ordinal, step=report.step, text=report.stack)
        for report in (*culprits, *others)[:MAX_STACKS]
        if report.stack
    ]
    return shown if shown and not _is_same_stall(known, shown, len(culprits)) else known


def _may_change(situation: Situation, known: list[Stack] | None) -> bool:
    told = situation.status.condition(ConditionType.TRAINING_STALLED)
    if told is None or told.status != "True" or all(each.attempt != situation.attempt.number for each in known or ()):
        return True
    age = situation.now - told.last_transition_time
    if age < _SETTLES:
        return True
    doubled = 1 << ((age // _SETTLES).bit_length() - 1)
    return doubled > 1 and age - doubled * _SETTLES < _AGAIN


def _is_same_stall(known: list[Stack] | None, shown: list[Stack], culprits: int) -> bool:
    """Whether what matters of a stall is known: the stacks of those that the others wait for, else any of them."""
    of = {(stack.attempt, stack.rank, stack.step) for stack in known or ()}
    found = [(stack.attempt, stack.rank, stack.step) in of for stack in shown]
    if found.count(True) == len(of) < len(found):
        # The same stall, of which more is known now.
        return False
    return all(found[:culprits]) if culprits else any(found)
