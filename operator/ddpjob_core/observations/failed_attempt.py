"""Whether an attempt has failed, and how long to wait for its other nodes to end.

Some of them may reveal the cause when only its consequences are known; others may still be saving a checkpoint.
"""

from datetime import datetime, timedelta
from typing import Final

from ddpjob_core.api.restart import CANNOT_START
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.awaited_pods import as_wait
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.membership import missed
from ddpjob_core.observations.observed import Running, Terminated
from ddpjob_core.observations.rendezvous import waiting_for_nobody
from ddpjob_core.observations.root_cause import POD_MISSING, find_root_cause, is_consequence
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.stall import makes_steps

SETTLE: Final = timedelta(seconds=5)
"""How long after the first node's end those still running may take to reveal the cause."""
SETTLE_FOR_GOOD: Final = timedelta(seconds=60)
"""The same if the job fails permanently: no next attempt is delayed, and the cause is what is left of the job."""
NODE_0_ENDED: Final = "Node0Ended"
MISSED_CHANGE: Final = "MissedChangeOfSize"
LEAVE_TOGETHER: Final = timedelta(seconds=5)
"""How long after the end of a node that was asked to stop the others may take to end, as they have agreed to."""


def find_failure(situation: Situation) -> Failure | None:
    """Why the current attempt has failed; None if it has not.

    Before all pods were created a missing pod is yet to be created; after that it has failed.
    """
    changed = _missed_a_change(situation)
    if changed is not None:
        return changed
    states = situation.attempt.states()
    created = situation.status.pods_created
    # The other ranks would wait for the lost one until their collective times out. As long as steps are made, the node
    # is well and only its kubelet is not.
    lost = any(pod.node_lost for pod in situation.attempt.present) and not makes_steps(situation)
    if NodeState.FAILED not in states and not (created and NodeState.MISSING in states) and not lost:
        return _too_late(situation)
    found = find_root_cause(situation.attempt, missing_is_failed=created, lost_is_failed=lost, advice=situation.advice)
    known = situation.status.failure
    if found is not None and _could_start_before(situation, found):
        found = found.model_copy(update={"reason": "ExitCode"})
    if found is not None and found.reason == POD_MISSING and known is not None and known.attempt == found.attempt:
        # It was seen being removed before it was gone.
        return known if known.pod == found.pod else found
    return found if found is None else as_wait(situation, found)


def _missed_a_change(situation: Situation) -> Failure | None:
    """A node that ended before it had heard of a change of size; not counted, since it may have come of the change."""
    ordinal, membership, attempt = missed(situation), situation.membership, situation.attempt
    pod = None if ordinal is None else attempt.nodes[ordinal]
    if pod is None or membership is None:
        return None
    return Failure(
        ordinal=ordinal,
        pod=pod.name,
        node_name=pod.node_name,
        attempt=attempt.number,
        failure_class=FailureClass.DISRUPTION.value,
        reason=MISSED_CHANGE,
        message=f"node {ordinal} ended before it had heard that {membership.nodes} nodes train together from now on",
    )


def _too_late(situation: Situation) -> Failure | None:
    """The failure of a node that waits for node 0, which has ended without it."""
    wait, attempt = waiting_for_nobody(situation), situation.attempt
    if wait is None:
        return None
    pod = attempt.nodes[wait.ordinal]
    message = (
        f"node {wait.ordinal} has started too late: node 0 has already ended with exit code 0, and can no longer be "
        "reached; if the nodes need not meet, use the launcher torchrun, under which they wait for each other"
    )
    return Failure(
        ordinal=wait.ordinal,
        pod=attempt.names[wait.ordinal],
        node_name=pod.node_name if pod is not None else None,
        attempt=attempt.number,
        failure_class=FailureClass.ERROR.value,
        reason=NODE_0_ENDED,
        message=message,
    )


def cause_known_at(situation: Situation, failure: Failure) -> datetime | None:
    """When to stop waiting for a cause while only consequences are known; None if there is nothing to wait for.

    The victims of a killed process often end before its own node does, which first stops its other workers.
    """
    return _others_end_at(situation, SETTLE) if is_consequence(failure) else None


def consequences_known_at(situation: Situation, failure: Failure) -> datetime | None:
    """When a job that fails permanently stops waiting for consequences, or for a better cause."""
    return _others_end_at(situation, SETTLE_FOR_GOOD if is_consequence(failure) else SETTLE)


def _others_end_at(situation: Situation, after: timedelta) -> datetime | None:
    """When to stop waiting for nodes that are still running once others have ended."""
    attempt = situation.attempt
    if NodeState.RUNNING not in attempt.states():
        return None
    ends = [pod.trainer.seen for pod in attempt.present if isinstance(pod.trainer, Terminated)]
    known = [end for end in ends if end is not None]
    return min(known) + after if known else None


def saved_at(situation: Situation, failure: Failure) -> datetime | None:
    """When to stop waiting for a job with a pod that was asked to stop: its ranks save before they exit."""
    attempt = situation.attempt
    pod = attempt.last_seen(failure.ordinal) if failure.ordinal is not None else None
    # Only a job that completes steps has something to save.
    if pod is None or pod.node_lost or not (makes_steps(situation) or _has_made_steps(situation)):
        return None
    if isinstance(pod.trainer, Terminated):
        # Ranks that can go on without a node have saved, and wait for another pod of it instead of ending.
        progress = situation.status.progress
        stay = progress is not None and progress.attempt == attempt.number and progress.rejoins is not None
        return _left_together_at(pod.trainer) if NodeState.RUNNING in attempt.states() and not stay else None
    # One that is gone although it ran was removed by force.
    stopping = isinstance(pod.trainer, Running) and pod in attempt.present
    return pod.deletion_time + SETTLE if stopping and pod.deletion_time is not None else None


def _left_together_at(stopped: Terminated) -> datetime | None:
    """When the other nodes should have ended by themselves: unlike deleted pods, they leave their logs."""
    report, ended = stopped.report, stopped.seen
    return ended + LEAVE_TOGETHER if report is not None and report.stopped and ended is not None else None


def _could_start_before(situation: Situation, failure: Failure) -> bool:
    """Whether what a program lacks that cannot begin may have been there in an earlier attempt.

    An earlier one that made steps had it. One that ended otherwise did not fail for it: a node may now lack a volume.
    """
    restarts = situation.status.restarts
    of_program = failure.reason == CANNOT_START and failure.rank is not None
    return of_program and bool(restarts.furthest_step or restarts.counted or restarts.ignored)


def _has_made_steps(situation: Situation) -> bool:
    progress = situation.status.progress
    return progress is not None and progress.attempt == situation.attempt.number and bool(progress.step)
