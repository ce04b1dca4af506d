"""Stalled training, judged by spec.progressDeadline: whether steps are made, and which rank the others wait for.

Each rank counts the seconds since its last step itself, so clocks of different machines are never compared. Rules about
progress apply from the first step on: a program that reports none is never judged, nor is one that has no answering
rank, since the cause may be the operator's own network.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from ddpjob_core.api.deadlines import DeadlineAction, ProgressDeadline
from ddpjob_core.api.status import ConditionType, Failure
from ddpjob_core.observations.attempt import Attempt, NodeState
from ddpjob_core.observations.poll import poll_targets
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall_culprit import UNEXPLAINED, explain
from ddpjob_core.wire.progress import PollTarget
from ddpjob_core.wire.rank_report import Activity, RankReport

SILENT_AFTER: Final = timedelta(seconds=5)
"""Age of a rank's newest answer from which it counts as silent: two polls have failed by then."""
STACK_PATIENCE: Final = timedelta(seconds=3)
"""How much longer an answer with a stack is waited for; a program with its own training loop may send none."""
LOOK_EVERY: Final = timedelta(seconds=2)
"""How often a training that may be stalled is checked."""
MOST_RANKS: Final = 512
"""Maximum number of ranks that are polled when a training may be stalled. What more of them said, with their stacks,
would have to be kept until the last had been asked: megabytes of each such job."""
LONG_ACTIVITIES: Final = (Activity.CHECKPOINT, Activity.EVALUATION)
PATIENCE_OF_LONG_ACTIVITIES: Final = 10
"""Number of deadlines that an evaluation or a checkpoint may take: they complete no steps, but a
hanging volume is a stall too."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A stalled training: for which ranks the others wait, none where all do the same, and what the ranks answer."""

    seconds: int
    message: str
    culprits: tuple[RankReport, ...]
    answers: tuple[RankReport, ...] = ()


def suspected(situation: Situation) -> bool:
    """Whether all ranks should be polled: rank 0 has not completed a step for a good part of the deadline."""
    age, listened = _age_of_newest_step(situation), _listened_until(situation)
    if listened is not None and situation.now < listened:
        return False
    return age is not None and age >= _suspicion(situation.spec.progress_deadline)


def next_stall_check(situation: Situation) -> tuple[datetime, ...]:
    """When time alone may change the answer."""
    age, listened = _age_of_newest_step(situation), _listened_until(situation)
    if age is None:
        return ()
    if listened is not None and situation.now < listened:
        return (listened,)
    deadline = situation.spec.progress_deadline
    left = (timedelta(seconds=deadline.seconds) if age >= _suspicion(deadline) else _suspicion(deadline)) - age
    if age >= _suspicion(deadline):
        left = min(left, LOOK_EVERY) if left > timedelta() else LOOK_EVERY
    # At least one second: decisions are made on whole seconds.
    second = timedelta(seconds=1)
    acts_at = _acts_at(situation)
    # When a stall is about to be acted on, what the ranks report is wanted immediately.
    return (situation.now + (max(left, second) if acts_at is None else second),)


def find_stall(situation: Situation) -> Stall | None:
    """The stall, None if there is none or nothing is known."""
    limit = situation.spec.progress_deadline.seconds
    fresh = _answers(situation)
    judged = [
        report for report in fresh if report.seconds_since_step is not None and report.activity is not Activity.FINISHED
    ]
    if not judged:
        return None
    ages = {report.rank: _age(report, situation.now) for report in judged}
    # The newest step of any rank counts: with DDP no rank can make one without the others.
    seconds = int(min(ages.values()))
    if seconds < limit or not any(ages[report.rank] >= _limit(report, limit) for report in judged):
        return None
    known = [report for report in situation.observed.ranks if report.attempt == situation.attempt.number]
    done = {report.rank: report for report in (*_ended(situation), *known) if report.activity is Activity.FINISHED}
    unknown = [report for report in _silent(situation, fresh) if report.rank not in done]
    culprits, message = explain(judged, unknown, [done[rank] for rank in sorted(done)])
    answers = tuple(sorted(fresh, key=lambda report: report.rank))
    what = f"no step for {seconds} s (spec.progressDeadline: {limit} s{_unasked(situation)}): {message}"
    return Stall(seconds, what, tuple(culprits), answers)


def is_unexplained(message: str) -> bool:
    """Whether the message of a stall names no rank because all seemed to do the same."""
    return message.endswith(UNEXPLAINED)


def failure_of(stall: Stall, attempt: Attempt) -> Failure:
    """The stall as the cause of a restart or of a failed job, with the stack of the culprit or the lowest rank."""
    culprit = next(iter(stall.culprits), None)
    shown = next((report for report in (*stall.culprits, *stall.answers) if report.stack), None)
    pod = attempt.nodes[culprit.ordinal] if culprit is not None and culprit.ordinal < len(attempt.nodes) else None
    return Failure(
        rank=culprit.rank if culprit is not None else None,
        ordinal=culprit.ordinal if culprit is not None else None,
        pod=pod.name if pod is not None else None,
        node_name=pod.node_name if pod is not None else None,
        attempt=attempt.number,
        failure_class="Stalled",
        reason="TrainingStalled",
        message=stall.message,
        traceback=f"rank {shown.rank} hangs in:\n{shown.stack}" if shown is not None else None,
    )


def rank_targets(situation: Situation) -> tuple[PollTarget, ...]:
    """Where the ranks of the current attempt answer: rank 0 only, or all that can be polled if a stall is suspected."""
    targets = _all_targets(situation)
    return targets if suspected(situation) else tuple(target for target in targets if target.rank == 0)


def _all_targets(situation: Situation) -> tuple[PollTarget, ...]:
    """All ranks that can be polled. Of too many, those of as many nodes as possible: more often a node hangs as a whole
    than that one of its ranks does.
    """
    first = tuple(islice(poll_targets(situation, range(len(situation.attempt.nodes)), (0,)), MOST_RANKS))
    nodes = [target.ordinal for target in first]
    each = (poll_targets(situation, nodes, (local,)) for local in range(1, situation.status.procs_per_node or 1))
    return tuple(sorted(islice(chain(first, chain.from_iterable(each)), MOST_RANKS), key=lambda target: target.rank))


def _unasked(situation: Situation) -> str:
    """Words about ranks that are not asked, "" where all are."""
    ranks = len(situation.attempt.nodes) * (situation.status.procs_per_node or 1)
    return f"; {MOST_RANKS} of the {ranks:,} ranks are asked" if ranks > MOST_RANKS else ""


def is_action_due(situation: Situation, stall: Stall | None) -> bool:
    """Whether the deadline's action is due: the condition has been written, and the ranks reported their stacks."""
    due = _acts_at(situation)
    if stall is None or due is None:
        return False
    # The stack of each rank may be that of the one which the others wait for.
    missing = any(not report.stack for report in stall.answers if report.activity is not Activity.FINISHED)
    return situation.now >= (due + STACK_PATIENCE if missing else due)


def _acts_at(situation: Situation) -> datetime | None:
    deadline = situation.spec.progress_deadline
    known = situation.status.condition(ConditionType.TRAINING_STALLED)
    if deadline.action is DeadlineAction.WARN or known is None or known.status != "True":
        return None
    return known.last_transition_time + _dump_time(deadline)


def _dump_time(deadline: ProgressDeadline) -> timedelta:
    """How long the ranks have to write their stacks, which they start within a twentieth of the deadline or 5 s."""
    return timedelta(seconds=1 + min(deadline.seconds // 20, 5))


def makes_steps(situation: Situation) -> bool:
    """Whether a step was completed in the last few seconds, which proves that every rank is alive."""
    return any(
        report.seconds_since_step is not None and _age(report, situation.now) < SILENT_AFTER.total_seconds()
        for report in _answers(situation)
    )


def steps_again(situation: Situation) -> bool:
    """Whether a rank that responds goes on, and has completed a step in the current attempt; or all have finished."""
    known = [report for report in situation.observed.ranks if report.attempt == situation.attempt.number]
    if known and all(report.activity is Activity.FINISHED for report in known):
        return True
    going_on = [report for report in _answers(situation) if report.activity is not Activity.FINISHED]
    return any(report.seconds_since_step is not None for report in going_on)


def _answers(situation: Situation) -> list[RankReport]:
    """The newest answers of the current attempt's ranks, except those that are too old."""
    return [
        report
        for report in situation.observed.ranks
        if report.attempt == situation.attempt.number and situation.now - report.answered < SILENT_AFTER
    ]


def _silent(situation: Situation, fresh: list[RankReport]) -> list[RankReport]:
    """The ranks that do not answer, with their last reports.

    One that has merely not been asked lately, since many others were, is none of them.
    """
    known = {report.rank: report for report in situation.observed.ranks if report.attempt == situation.attempt.number}
    answering = {report.rank for report in fresh}
    return [
        known.get(target.rank) or RankReport(target.attempt, target.rank, target.ordinal, situation.now)
        for target in _all_targets(situation)
        if target.rank not in answering and target in situation.observed.unanswered
    ]


def _ended(situation: Situation) -> list[RankReport]:
    """The first rank of each node whose program has ended with 0 while others go on."""
    number, processes = situation.attempt.number, situation.status.procs_per_node or 1
    return [
        RankReport(number, ordinal * processes, ordinal, situation.now, activity=Activity.FINISHED)
        for ordinal, state in enumerate(situation.attempt.states())
        if state is NodeState.SUCCEEDED
    ]


def _age_of_newest_step(situation: Situation) -> timedelta | None:
    """How long no step is known of: since a rank reported one, or else since the one in the status was read."""
    ages = [
        _age(report, situation.now)
        for report in situation.observed.ranks
        if report.attempt == situation.attempt.number and report.seconds_since_step is not None
    ]
    if ages:
        return timedelta(seconds=min(ages))
    progress = situation.status.progress
    if progress is None or progress.attempt != situation.attempt.number or not progress.step:
        return None
    return None if progress.observed_time is None else max(situation.now - progress.observed_time, timedelta())


def _listened_until(situation: Situation) -> datetime | None:
    """Until when a process that has taken over listens to rank 0 alone; None once it has heard of a rank."""
    number, since = situation.attempt.number, situation.observed.taken_over
    if since is None or any(report.attempt == number for report in situation.observed.ranks):
        return None
    # Decisions are made on whole seconds.
    return (since + SILENT_AFTER + timedelta(seconds=1)).replace(microsecond=0)


def _age(report: RankReport, now: datetime) -> float:
    """Seconds without a sign of progress; for a loop that reports only steps, since the last step."""
    quiet = report.seconds_since_step if report.quiet_seconds is None else report.quiet_seconds
    return (quiet or 0.0) + max(0.0, (now - report.answered).total_seconds())


def _suspicion(deadline: ProgressDeadline) -> timedelta:
    return timedelta(seconds=max(deadline.seconds / 2, deadline.seconds - 30))


def _limit(report: RankReport, seconds: int) -> int:
    return seconds * PATIENCE_OF_LONG_ACTIVITIES if report.activity in LONG_ACTIVITIES else seconds
