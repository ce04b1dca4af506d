"""Whom a stalled training waits for: a rank that is silent, has finished, is behind, or hangs outside a collective."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from ddpjob_core.observations.listing import first_few
from ddpjob_core.wire.rank_report import Activity, RankReport

UNEXPLAINED: Final = "a collective does not finish, or the program hangs"
"""Last words about a stall in which all ranks seem to do the same."""
Explanation: TypeAlias = tuple[list[RankReport], str]
"""The ranks that the others wait for, none where all do the same, and the message."""
_NAMED_RANKS: Final = 8
_DOING: Final[Mapping[Activity | None, str]] = {
    Activity.DATA: "waiting for data",
    Activity.CHECKPOINT: "saving a checkpoint",
    Activity.EVALUATION: "evaluating",
}
_INNERMOST: Final = re.compile(r'File "([^"\n]*)", line \d+[^\n]*(?:\n[ \t]+([^\n]*))?')
# Where a rank waits for others: a collective itself, the backward pass (DDP's hooks run in it), and with nccl wherever
# the program waits for the device, since the device waits for the collective.
_WAITS_IN: Final = re.compile(
    r"[\\/](torch[\\/](distributed|autograd|cuda|nn[\\/]parallel)|deepspeed|horovod|mpi4py)[\\/]"
)
_WAITS_FOR: Final = re.compile(r"\.(wait|synchronize|item|cpu|tolist|to)\(|\b(float|int|bool)\(")


def explain(waiting: Sequence[RankReport], silent: Sequence[RankReport], done: Sequence[RankReport]) -> Explanation:
    """Whom the others wait for, and in a message who that is and where the others are.

    Args:
        waiting: ranks that answer and have not finished; at least one.
        silent: ranks that do not answer.
        done: ranks whose training or process has ended.
    """
    newest = max((report.step for report in waiting if report.step is not None), default=None)
    if silent:
        verb = "does" if len(silent) == 1 else "do"
        return list(silent), f"{_ranks(silent)} {verb} not respond; the others are waiting at step {newest}"
    if done:
        verb = "has" if len(done) == 1 else "have"
        why = "the ranks do not have the same number of steps"
        return list(done), f"{_ranks(done)} {verb} finished, the others are waiting at step {newest}: {why}"
    return _behind(waiting, newest)


def _behind(waiting: Sequence[RankReport], newest: int | None) -> Explanation:
    """The same where all ranks answer and none has finished; `newest` is the newest step of any."""
    behind = [report for report in waiting if report.step is not None and newest is not None and report.step < newest]
    if behind:
        return behind, f"{_ranks(behind)} {_is(behind)} behind; the others have completed step {newest}"
    in_the_step = f"the others are waiting in the step after step {newest}"
    apart = [report for report in waiting if report.activity is not Activity.STEP]
    doing = _DOING.get(apart[0].activity, "outside the training step") if apart else ""
    if apart and len(apart) < len(waiting):
        return apart, f"{_ranks(apart)}: {doing}; {in_the_step}"
    outside = [report for report in waiting if waits_for_others(report.stack) is False]
    if outside and any(waits_for_others(report.stack) for report in waiting):
        return outside, f"{_ranks(outside)} {_is(outside)} in no collective operation; {in_the_step}"
    if apart:
        return [], f"all responding ranks: {doing}, after step {newest}"
    return [], f"all ranks are waiting in the step after step {newest}: {UNEXPLAINED}"


def waits_for_others(stack: str | None) -> bool | None:
    """Whether the innermost call of a stack is one in which a rank waits for others; None where there is no stack."""
    calls = _INNERMOST.findall(stack or "")
    if not calls:
        return None
    file, code = calls[-1]
    return bool(_WAITS_IN.search(file) or _WAITS_FOR.search(code))


def _ranks(reports: Iterable[RankReport]) -> str:
    listed = sorted(reports, key=lambda report: report.rank)
    named = [f"{report.rank} (node {report.ordinal}{_at(report)})" for report in listed]
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(first_few(named, _NAMED_RANKS))}"


def _at(report: RankReport) -> str:
    return "" if report.step is None else f", step {report.step}"


def _is(reports: Sequence[RankReport]) -> str:
    return "is" if len(reports) == 1 else "are"
