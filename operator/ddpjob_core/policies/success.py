"""When a job has succeeded: the trainer of every node has exited with 0, whatever else runs in its pod.

Under mpirun that of node 0 decides: mpirun runs there, and ends with 0 when all ranks have. The others have nothing to
do from then on and end by themselves; they are given a moment, since a pod that still runs when its job has succeeded
is deleted, and its log with it.
"""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.display import format_seconds
from ddpjob_core.api.status import ConditionType
from ddpjob_core.observations.attempt import NodeState
from ddpjob_core.observations.membership import missed
from ddpjob_core.observations.observed import Terminated
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision
from ddpjob_core.status.conditions import Fact, with_facts
from ddpjob_core.status.separate_groups import separate_groups

OTHERS_END_WITHIN: Final = timedelta(seconds=15)
"""How long the other nodes have to end after a deciding node 0."""


def succeeded(situation: Situation) -> Decision | None:
    """An attempt whose nodes have all succeeded."""
    states = situation.attempt.states()
    launcher = situation.spec.launcher
    decisive = states[:1] if launcher.traits.decided_by_node_0 else states
    if any(state is not NodeState.SUCCEEDED for state in decisive) or missed(situation) is not None:
        return None
    first = situation.attempt.nodes[0]
    ended = first.trainer.seen if first is not None and isinstance(first.trainer, Terminated) else None
    if NodeState.RUNNING in states and ended is not None and situation.now < ended + OTHERS_END_WITHIN:
        return Decision(situation.status, requeue_at=(ended + OTHERS_END_WITHIN,))
    start = situation.status.start_time or situation.now
    status = situation.status.model_copy(
        update={
            "completion_time": situation.now,
            "start_time": start,
            "pods_created": True,
            # What failed earlier has been overcome; the restarts still show that it happened.
            "failure": None,
        },
    )
    took = format_seconds(int((situation.now - start).total_seconds()))
    nodes = f"{len(states)} node" + ("s" if len(states) > 1 else "")
    how = f"{launcher.value} on {nodes}" if launcher.traits.decided_by_node_0 else nodes
    apart = separate_groups(situation)
    but = f", but not as one training: see {ConditionType.SEPARATE_GROUPS.value}" if apart else ""
    fact = Fact(ConditionType.SUCCEEDED, "True", "AllNodesSucceeded", f"{how} exited with 0 after {took}{but}")
    return Decision(
        with_facts(status, (fact, *apart), situation.job.generation, situation.now),
        transition=True,
    )
