"""The condition PodsScheduled, and why the pods of an attempt have not been created."""

from datetime import timedelta
from typing import Final

from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.restart import Restart
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.children.restricted import is_restricted
from ddpjob_core.children.root import containers_as_root
from ddpjob_core.observations.attempt import NodeState, node_state
from ddpjob_core.observations.listing import first_few, grouped_by_message
from ddpjob_core.observations.observed import RejectionKind
from ddpjob_core.observations.obstacle import obstacle_of
from ddpjob_core.observations.refusals import name_taken, taken_names
from ddpjob_core.observations.restart_backoff import not_before
from ddpjob_core.observations.situation import Situation
from ddpjob_core.status.conditions import Fact
from ddpjob_core.status.obstacles import NAMED_OBJECTS, obstacles

_UNNOTICED: Final = timedelta(seconds=5)
"""Backoff that needs no explanation."""
_WHY: Final = {
    RejectionKind.UNAVAILABLE: "the API server fails to create",
    RejectionKind.ALTERED: "cannot use",
    RejectionKind.BEING_DELETED: "waiting to create",
    RejectionKind.NAME_TAKEN: "waiting to create",
}


def why_not_created(situation: Situation, status: DDPJobStatus) -> tuple[str, str]:
    """Reason and message of an attempt whose pods have not all been created."""
    taken = taken_names(situation)
    if taken:
        name, owner = next(iter(taken.items()))
        return RejectionKind.NAME_TAKEN.value, f"{name}: {name_taken(owner)}"
    # The answers of an attempt that is being left say nothing about the next one.
    if situation.observed.rejections and status.attempt == situation.attempt.number:
        # Sorted by name: the answers arrive in any order, which must not look like a change.
        refused = sorted(situation.observed.rejections, key=lambda rejection: rejection.object)
        listed = grouped_by_message([(str(each.object), each.message) for each in refused], NAMED_OBJECTS)
        kind = refused[0].kind
        return kind.value, f"{_WHY.get(kind, 'the API server refuses to create')} {listed}"
    if (status.restarts.counted or status.restarts.ignored) and not status.holds(ConditionType.SUSPENDED):
        stopped = f"attempt {status.attempt} starts when the pods of the previous one have stopped"
        return "Restarting", stopped + _backoff(status, situation.spec.restart)
    return "CreatingPods", f"the pods of attempt {status.attempt} are being created"


def _backoff(status: DDPJobStatus, spec: Restart) -> str:
    """What else a restart waits for. It does not say for how long yet: each second would be another status."""
    due, last = not_before(status, spec), status.restarts.last_time
    if due is None or last is None or due - last <= _UNNOTICED:
        return ""
    row = status.restarts.in_a_row
    return f", and not before {due:%H:%M:%S} UTC: it is restart {row} in a row without a newer step or checkpoint"


def added_containers(situation: Situation) -> str:
    """Names of the containers of the pods that neither the operator nor spec.template asks for, "" for none."""
    template = situation.spec.template.get("spec") or {}
    asked = {each.get("name") for key in ("containers", "initContainers") for each in template.get(key) or ()}
    found = {name for pod in situation.attempt.present for name in pod.containers}
    return ", ".join(first_few(sorted(found - asked - {TRAINER_CONTAINER}), NAMED_OBJECTS))


def _run_as_root(situation: Situation) -> str:
    found = containers_as_root(situation.spec, restricted=is_restricted(situation.job.status))
    if not found:
        return ""
    are = "container {} runs" if len(found) == 1 else "containers {} run"
    return f"; {are.format(', '.join(first_few(found, NAMED_OBJECTS)))} as root, as the job asks"


def pods_scheduled(situation: Situation) -> Fact:
    """The condition PodsScheduled: which pods have no node, and why."""
    kind = ConditionType.PODS_SCHEDULED
    if situation.observed.rejections or taken_names(situation):
        return Fact(kind, "False", *why_not_created(situation, situation.status))
    waiting = [pod for pod in situation.attempt.present if not pod.scheduled and node_state(pod) is NodeState.PENDING]
    desired = len(situation.attempt.nodes)
    if not waiting:
        added = added_containers(situation)
        remark = f"; an admission webhook or policy has added the containers {added}" if added else ""
        if situation.isolation is not None and situation.on_host_network:
            remark += "; on the network of their nodes, no NetworkPolicy protects them"
        remark += _run_as_root(situation)
        return Fact(kind, "True", "AllPodsScheduled", f"{desired} of {desired} pods have a node{remark}")
    return Fact(
        kind,
        "False",
        next((obstacle.reason for pod in waiting if (obstacle := obstacle_of(pod))), "WaitingForScheduler"),
        "; ".join([f"{desired - len(waiting)}/{desired} pods have a node", *obstacles(situation, tuple(waiting))]),
    )
