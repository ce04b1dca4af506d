"""When a slow rank is to be moved to another node, by spec.slowRank."""

from datetime import datetime, timedelta

from ddpjob_core.api.constants import MAX_ATTEMPT
from ddpjob_core.api.slow_rank import SlowRankAction
from ddpjob_core.api.status import Slowest, SlowPart
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.situation import Situation


def replace_at(situation: Situation) -> datetime | None:
    """When the rank in status.slowest is to be moved; None while it is not to be.

    Whether another node has room, only the scheduler knows. What can be known is that the rank's node is not the only
    one that the job uses, and that leaving it loses no step.
    """
    status, wanted = situation.status, situation.spec.slow_rank
    slowest = status.slowest
    if wanted.action is not SlowRankAction.REPLACE or status.replaced is not None or slowest is None:
        return None
    can_help = _is_named_now(situation, slowest) and _may_be_quicker_elsewhere(situation, slowest)
    if not can_help or not _can_leave(situation, wanted.seconds):
        return None
    return slowest.time + timedelta(seconds=wanted.seconds)


def _is_named_now(situation: Situation, slowest: Slowest) -> bool:
    """Whether it is still what rank 0 reports, and not what another operator has read."""
    report, number = situation.observed.progress, situation.attempt.number
    named = report.slowest if report is not None and report.attempt == number else None
    return slowest.attempt == number and named is not None and named.rank == slowest.rank


def _may_be_quicker_elsewhere(situation: Situation, slowest: Slowest) -> bool:
    """Whether the rank's node may be the reason: rank 0 writes the checkpoints wherever it runs."""
    nodes = {pod.node_name for pod in situation.attempt.present}
    return slowest.what is not SlowPart.CHECKPOINT and slowest.node_name is not None and nodes > {slowest.node_name}


def _can_leave(situation: Situation, seconds: int) -> bool:
    """Whether all ranks are there to save, have done so before, and have more than so many seconds left."""
    status, progress = situation.status, situation.status.progress
    if not status.pods_created or status.attempt >= MAX_ATTEMPT:
        return False
    if progress is None or progress.last_checkpoint_step is None:
        return False
    whole = all(state is NodeState.RUNNING for state in situation.attempt.states())
    return whole and (progress.eta_seconds is None or progress.eta_seconds >= seconds)
