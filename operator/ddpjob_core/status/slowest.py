"""status.slowest: the rank that slows down the others."""

from ddpjob_core.api.status import ConditionType, DDPJobStatus, Slowest
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.suspension import is_stopping


def slowest_rank(situation: Situation, status: DDPJobStatus) -> Slowest | None:
    """The rank that rank 0 names, if it is one of the attempt that goes on; None if it names none.

    Args:
        situation: what is known.
        status: what was decided; it may already name the next attempt.
    """
    attempt, report, known = situation.attempt, situation.observed.progress, status.slowest
    if status.finished or is_stopping(status) or status.holds(ConditionType.SUSPENDED):
        return None
    if known is not None and known.attempt != status.attempt:
        known = None
    if status.attempt != attempt.number:
        return None
    if report is None or report.attempt != attempt.number:
        # Another operator has taken over and has not read it yet.
        return known
    if report.slowest is None or not status.procs_per_node:
        return None
    ordinal = report.slowest.rank // status.procs_per_node
    pod = attempt.nodes[ordinal] if ordinal < len(attempt.nodes) else None
    if pod is None:
        return None
    same = known is not None and (known.rank, known.pod) == (report.slowest.rank, pod.name)
    return Slowest(
        attempt=attempt.number,
        rank=report.slowest.rank,
        ordinal=ordinal,
        pod=pod.name,
        node_name=pod.node_name,
        factor=report.slowest.factor,
        what=report.slowest.what,
        time=known.time if known is not None and same else situation.now,
    )
