"""The condition SpareNodesReady: whether the spare nodes that the job asks for could take a place now."""

from typing import Final

from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.children.spare_pod import node_reference
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import grouped_by_message
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.spare_nodes import (
    has_failed,
    may_have_spares,
    name_fits,
    next_number,
    ready_spares,
    waiting_spares,
)
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.obstacles import NAMED_OBJECTS, obstacles

_KIND: Final = ConditionType.SPARE_NODES_READY


def spare_facts(situation: Situation, status: DDPJobStatus) -> tuple[Fact, ...]:
    """The condition, for a job that asks for spare nodes or has asked for them; none for others.

    Args:
        situation: in which the spares are those of the decided status.
        status: what was decided.
    """
    elastic = situation.spec.elastic
    asked = 0 if elastic is None else elastic.spare_nodes
    if not asked:
        known = status.condition(_KIND)
        return () if known is None else (Fact(_KIND, "False", "NotAskedFor", "spec.elastic.spareNodes is 0"),)
    ready = len(ready_spares(situation))
    if ready >= asked:
        return (Fact(_KIND, "True", "AllReady", f"{_ready(ready, asked)}"),)
    reason, why = _why_not(situation)
    return (Fact(_KIND, "False", reason, f"{_ready(ready, asked)}; {why}"),)


def _ready(ready: int, asked: int) -> str:
    return f"{ready} of {asked} spare nodes {'is' if ready == 1 else 'are'} ready"


def _why_not(situation: Situation) -> tuple[str, str]:
    reference = node_reference(situation.spec)
    if reference is not None:
        return "NodeReferred", f"the job refers to {reference}, which a pod without a node does not have"
    if not name_fits(situation, next_number(situation)):
        return "NameTooLong", "the job's name leaves no room for the names of their pods: give it a shorter one"
    if situation.spares_refused:
        refused = sorted(situation.spares_refused, key=lambda each: each.object)
        listed = grouped_by_message([(each.object.name, each.message) for each in refused], NAMED_OBJECTS)
        return refused[0].kind.value, f"the API server refuses to create {listed}; the training does not wait for them"
    if not may_have_spares(situation):
        return "NodesFirst", "they are created when all nodes train and none is to join or to come back"
    return _on_its_way(situation)


def _on_its_way(situation: Situation) -> tuple[str, str]:
    pods = [situation.attempt.spares.get(each.number) for each in waiting_spares(situation)]
    pending = tuple(pod for pod in pods if pod is not None and node_state(pod) is NodeState.PENDING)
    said = obstacles(situation, pending)
    if said:
        return "NotReady", "; ".join(said)
    failed = [pod.name for pod in pods if pod is not None and has_failed(pod)]
    if failed:
        why = "its log says why; another one takes its place, and no restart is counted"
        return "Failed", f"{failed[0]} has ended: {why}"
    return "Creating", "they are being created"
