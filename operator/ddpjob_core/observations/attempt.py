"""The pods of a job by attempt: the state of each node of the current one, and what is left of older ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from ddpjob_core.api.names import attempt_of, parse_pod_name, parse_spare_pod_name, pod_name, pod_names, spare_pod_name
from ddpjob_core.observations.node_lost import SILENCE
from ddpjob_core.observations.observed import JobRecord, PodRecord, Running, Terminated

LOST_AFTER: Final = SILENCE
"""How long after its deletion's grace period a pod that is still there counts as stopped: its node does not answer."""


class NodeState(StrEnum):
    """State of one node of an attempt."""

    MISSING = "missing"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def node_state(pod: PodRecord | None) -> NodeState:
    """The state of the node whose pod this is.

    Only the container `trainer` counts, whatever else runs alongside it. A pod that is deleted has failed from that
    moment on, unless its trainer had already succeeded.
    """
    if pod is None:
        return NodeState.MISSING
    if isinstance(pod.trainer, Terminated):
        return NodeState.SUCCEEDED if pod.trainer.exit_code == 0 else NodeState.FAILED
    if pod.phase == "Succeeded":
        return NodeState.SUCCEEDED
    if pod.phase == "Failed" or pod.deletion_time is not None:
        return NodeState.FAILED
    return NodeState.RUNNING if isinstance(pod.trainer, Running) else NodeState.PENDING


def is_terminal(pod: PodRecord) -> bool:
    """Whether nothing in the pod runs any longer: its logs can be read, its resources are free."""
    return pod.phase in ("Succeeded", "Failed") or (isinstance(pod.trainer, Terminated) and not pod.others_running)


def has_stopped(pod: PodRecord, now: datetime) -> bool:
    """Whether the pod's training no longer runs, or its node is lost and cannot tell.

    Waiting for a lost node would block the next attempt for minutes. It is safe not to: the names and the rendezvous id
    of an attempt are its own.
    """
    if is_terminal(pod) or isinstance(pod.trainer, Terminated) or pod.node_lost:
        return True
    return pod.deletion_time is not None and now >= pod.deletion_time + LOST_AFTER


@dataclass(frozen=True, slots=True)
class Attempt:
    """The current attempt: the pod of each ordinal, None where there is none, and the pods of older attempts.

    `succeeded` are ordinals that were seen to succeed, whatever became of their pods since. `vanished` are pods of the
    current attempt that had ended or were being removed and no longer exist, by name. `others` are the current
    attempt's pods, by ordinal, that do not train with `nodes`: they join or leave an elastic job. `older` has the pods
    of lost nodes too, of the current attempt, once others are to take their places; `awaited` are the ordinals of those
    that may not have been created yet. `spares` are the pods of spare nodes that wait to be named, by number.
    """

    number: int
    nodes: tuple[PodRecord | None, ...]
    names: tuple[str, ...]
    older: Mapping[str, tuple[int, PodRecord]]
    succeeded: frozenset[int] = frozenset()
    vanished: Mapping[str, PodRecord] = field(default_factory=dict)
    others: Mapping[int, PodRecord] = field(default_factory=dict)
    awaited: frozenset[int] = frozenset()
    spares: Mapping[int, PodRecord] = field(default_factory=dict)
    _states: tuple[NodeState, ...] = field(init=False, repr=False, compare=False)
    _present: tuple[PodRecord, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once: every policy asks for it, and there may be ten thousand nodes, most of them missing.
        states = tuple(
            [
                self._absent(ordinal) if pod is None and ordinal not in self.succeeded else self._state(ordinal, pod)
                for ordinal, pod in enumerate(self.nodes)
            ]
        )
        object.__setattr__(self, "_states", states)
        object.__setattr__(self, "_present", tuple([pod for pod in self.nodes if pod is not None]))

    def states(self) -> tuple[NodeState, ...]:
        """The state of each ordinal."""
        return self._states

    def state(self, ordinal: int) -> NodeState:
        """The state of one ordinal."""
        return self._states[ordinal]

    def _absent(self, ordinal: int) -> NodeState:
        return NodeState.PENDING if ordinal in self.awaited else NodeState.MISSING

    def _state(self, ordinal: int, pod: PodRecord | None) -> NodeState:
        state = node_state(pod)
        # Anyone may remove an ended pod; the garbage collector and a drained node do.
        return NodeState.SUCCEEDED if state is NodeState.MISSING and ordinal in self.succeeded else state

    def last_seen(self, ordinal: int) -> PodRecord | None:
        """The pod of an ordinal as it is, or as it was when it was last seen; None where there is no such node."""
        if ordinal >= len(self.nodes):
            # As in the failure of a status that a user has edited.
            return None
        return self.nodes[ordinal] or self.vanished.get(self.names[ordinal])

    @property
    def present(self) -> tuple[PodRecord, ...]:
        """The current attempt's pods that exist."""
        return self._present


def view_attempt(
    job: str,
    number: int,
    nodes: int,
    pods: tuple[PodRecord, ...],
    *,
    most: int | None = None,
    succeeded: frozenset[int] = frozenset(),
    vanished: tuple[PodRecord, ...] = (),
    members: Mapping[int, int] | None = None,
    awaited: frozenset[int] = frozenset(),
    named: Mapping[int, int] | None = None,
    waiting: frozenset[int] = frozenset(),
) -> Attempt:
    """Sort a job's own pods into the current attempt and older ones.

    A pod is identified by its name, which cannot be changed, and not by its labels, which can. What has none of this
    attempt's names, such as the pods of a size that was changed while suspended, counts as older.

    Args:
        job: name of the job.
        number: of the attempt.
        nodes: how many nodes train together.
        pods: of all attempts.
        most: how many nodes the attempt can have; None if that is `nodes`.
        succeeded: ordinals that were seen to succeed.
        vanished: pods that no longer exist.
        members: by ordinal, the generation of the membership that has brought a node's pod, where it is not the first.
        awaited: nodes that were lost and whose next pods may not have been created yet.
        named: by ordinal, the number of the spare node that has become the node.
        waiting: numbers of the spare nodes that wait to be named.
    """
    by_name = {pod.name: pod for pod in pods}
    most = nodes if most is None else most
    names, later = pod_names(job, number, nodes, most), members or {}
    if later:
        every = enumerate(names)
        names = tuple([pod_name(job, number, at, most, later[at]) if at in later else name for at, name in every])
    places = {spare_pod_name(job, number, spare): at for at, spare in (named or {}).items()}
    if places:
        renamed = {at: name for name, at in places.items()}
        names = tuple([renamed.get(at, name) for at, name in enumerate(names)])
    current = tuple([by_name.pop(name, None) for name in names])
    others: dict[int, PodRecord] = {}
    older: dict[str, tuple[int, PodRecord]] = {}
    spares: dict[int, PodRecord] = {}
    for name, pod in by_name.items():
        spare = parse_spare_pod_name(job, name)
        if spare is not None:
            if spare.attempt == number and spare.number in waiting:
                spares[spare.number] = pod
            elif name in places:
                # Its place is beyond the members: it is on its way out, unless they grow again.
                others[places[name]] = pod
            else:
                older[name] = (spare.attempt, pod)
            continue
        identity = parse_pod_name(job, name)
        if identity is None:
            continue
        # An elastic job may have ten thousand names, and has a few pods.
        ordinal = identity.ordinal
        own_name = pod_name(job, number, ordinal, most, later.get(ordinal, 0))
        if identity.attempt == number and nodes <= ordinal < most and name == own_name:
            others.setdefault(ordinal, pod)
        else:
            older[name] = (identity.attempt, pod)
    own = frozenset(names) if vanished else frozenset()
    left = {pod.name: pod for pod in vanished if pod.name in own}
    return Attempt(number, current, names, older, succeeded, left, dict(sorted(others.items())), awaited, spares)


def all_pods(attempt: Attempt) -> tuple[PodRecord, ...]:
    """The job's pods of all attempts."""
    return (
        *attempt.present,
        *attempt.others.values(),
        *attempt.spares.values(),
        *(pod for _, pod in attempt.older.values()),
    )


def live_pods(attempt: Attempt) -> tuple[PodRecord, ...]:
    """All the job's pods in which something still runs, those that are being deleted included."""
    return tuple(pod for pod in all_pods(attempt) if not is_terminal(pod))


def current_attempt(job: JobRecord, pods: tuple[PodRecord, ...]) -> int:
    """Number of the attempt that the status names; without a status, the newest that has pods, else 0."""
    if job.status is not None:
        return job.status.attempt
    attempts = (attempt_of(job.name, pod.name) for pod in pods)
    return max((attempt for attempt in attempts if attempt is not None), default=0)
