"""Whether an attempt has started training, and until when spec.startupDeadline allows it to."""

from datetime import datetime, timedelta

from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.rendezvous import waiting_for_node_0
from ddpjob_core.observations.situation import Situation


def has_started(situation: Situation) -> bool:
    """Whether the attempt has completed a step; for a program that reports nothing, whether all its nodes are up."""
    number = situation.attempt.number
    reports = [report for report in situation.observed.ranks if report.attempt == number]
    progress = situation.status.progress
    if any(report.seconds_since_step is not None for report in reports):
        return True
    if reports or (progress is not None and progress.attempt == number):
        return progress is not None and progress.attempt == number and bool(progress.step)
    if waiting_for_node_0(situation):
        return False
    return all(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in situation.attempt.states())


def startup_due(situation: Situation) -> datetime | None:
    """When spec.startupDeadline of the current attempt ends; None without one or before it has pods."""
    deadline, start = situation.spec.startup_deadline, situation.status.attempt_start_time
    if deadline is None or start is None:
        return None
    return start + timedelta(seconds=deadline.seconds)
