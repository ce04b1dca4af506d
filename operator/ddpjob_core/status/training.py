"""The condition Training."""

from ddpjob_core.api.status import ConditionType
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.rendezvous import waiting_for_node_0
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.startup import has_started, startup_due
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.rendezvous_ready import were_all_up


def training(situation: Situation, *, steps: bool) -> Fact:
    """The condition Training: whether steps are reported, and if not, what is missing.

    Args:
        situation: what is known.
        steps: whether this attempt has reported a step.
    """
    kind = ConditionType.TRAINING
    if steps:
        return Fact(kind, "True", "StepsReported", "rank 0 reports steps")
    states = situation.attempt.states()
    if waiting_for_node_0(situation):
        return Fact(kind, "False", *_not_met(situation))
    running = all(state in (NodeState.RUNNING, NodeState.SUCCEEDED) for state in states)
    if running or were_all_up(situation):
        if _is_late(situation):
            return Fact(
                kind, "False", "StartupDeadlineExceeded", "rank 0 did not report a step within spec.startupDeadline"
            )
        message = (
            "all nodes are running, but rank 0 has not reported a step: the program is still starting, "
            f"or it does not report its steps; {situation.advice.see_output(situation.job.name)}"
            if running
            else "a node has ended before rank 0 reported a step"
        )
        return Fact(kind, "Unknown", "NoProgressReported", message)
    if _is_late(situation):
        return Fact(kind, "False", "StartupDeadlineExceeded", "not all nodes were up within spec.startupDeadline")
    return Fact(kind, "False", "WaitingForNodes", "not all nodes are up")


def _not_met(situation: Situation) -> tuple[str, str]:
    if _is_late(situation):
        return "StartupDeadlineExceeded", "not all nodes could reach each other within spec.startupDeadline"
    return "WaitingForRendezvous", "not all nodes can reach each other"


def _is_late(situation: Situation) -> bool:
    due = startup_due(situation)
    return due is not None and situation.now >= due and not has_started(situation)
