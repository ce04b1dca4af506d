"""What the operator knows about one job at one moment: the only input of `decide`.

Everything here is plain, frozen data. The watch caches hold the same records, trimmed to what the policies read,
since thousands of whole pods would not fit into the operator's memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.spec_change import SpecChange, Writer
from ddpjob_core.wire.progress import PollTarget, ProgressReport
from ddpjob_core.wire.rank_report import RankReport, RendezvousWait
from ddpjob_core.wire.report import Report


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that has not started, with the kubelet's reason (such as ImagePullBackOff) and message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Running:
    """A running container, by its node's clock since `since`; `seen` is when the operator first saw it run."""

    since: datetime | None
    seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class Terminated:
    """A container that has ended. `report` is the launcher's; without one, `message` is the termination message.

    `finished_at` is of its node's clock and only orders failures; `seen` is when the operator first saw that it ended.
    """

    exit_code: int
    signal: int | None
    reason: str
    message: str
    finished_at: datetime | None
    seen: datetime | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class InitFailure:
    """An init container that has ended with an error, so that the pod's other containers never start."""

    container: str
    ended: Terminated


ContainerState: TypeAlias = Waiting | Running | Terminated | None


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod, trimmed to what the policies read.

    `attempt` and `ordinal` come from its labels and are None if a label is missing or not a number.
    `trainer` is the state of its container `trainer`; `obstacle` what the kubelet says about an init container or
    sidecar that prevents the pod from starting, or the scheduler about a pod that cannot be placed.
    `others_running` says that a container other than the trainer still runs, `node_lost` that the pod's node does not
    answer the control plane, `unadmitted_since` since when its node has not acknowledged it, `unmounted_since` since
    when it waits for its volumes or its network on that node, or for a claim without a node. `deletion_time` is when
    the grace period of its deletion ends, which lasts `deletion_grace` seconds. `spec_hash` identifies the spec it was
    created from, None if unknown; `membership` is the annotation that says which nodes train together. `containers` are
    the names of its containers, the trainer's and those of its init containers included, of many only some; `launcher`
    is the name of the launcher's ConfigMap while it waits for its volumes, else None; `ssh_key` that of the Secret with
    the key.

    `deletion_time`, `unadmitted_since` and `unmounted_since` are of the operator's clock once the record has been
    cached (sightings.py).
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str | None
    job: str | None
    attempt: int | None
    ordinal: int | None
    phase: str
    reason: str = ""
    message: str = ""
    created: datetime | None = None
    deletion_time: datetime | None = None
    deletion_grace: int = 0
    scheduled: bool = False
    ready: bool = False
    node_name: str | None = None
    pod_ip: str | None = None
    trainer: ContainerState = None
    obstacle: Waiting | None = None
    init_failure: InitFailure | None = None
    others_running: bool = False
    disruption: str | None = None
    node_lost: bool = False
    unadmitted_since: datetime | None = None
    unmounted_since: datetime | None = None
    spec_hash: str | None = None
    membership: str | None = None
    containers: tuple[str, ...] = ()
    launcher: str | None = None
    ssh_key: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A service, trimmed to its identity."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str | None
    job: str | None
    deletion_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class NetworkPolicyRecord:
    """A NetworkPolicy, trimmed to its identity; `content` is a hash of what it says (`content_of`)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str | None
    job: str | None
    content: str
    deletion_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A DDPJob as read from the API server.

    `spec` is None if it cannot be understood; `spec_error` then names the field and what is wrong with it.
    `too_large` names a field of the spec that holds more than a job may and says what is too much about it; the field
    itself is then left out of `spec`. `status` is None if it does not exist yet or was erased. `unreadable` says what
    this version does not understand, or does not know because it comes from a newer one; what it does understand is in
    `spec` and `status` all the same, and `raw_status` is the status as it was read. `unknown_in_spec` is the part of
    `unreadable` that comes of fields of the spec which this version does not know. `writer` wrote the spec last, and
    `change` is what that has changed, None where no earlier generation has been seen. `size` is about how many bytes
    its spec takes in memory; a job that rests takes fewer.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deleting: bool
    spec: DDPJobSpec | None
    spec_error: str | None = None
    status: DDPJobStatus | None = None
    too_large: str | None = None
    unknown_in_spec: str | None = None
    writer: Writer | None = None
    change: SpecChange | None = None
    unreadable: str | None = None
    raw_status: Mapping[str, Any] | None = None
    size: int = field(default=0, compare=False)


class RejectionKind(StrEnum):
    """Why the API server refused to create an object."""

    INVALID = "Invalid"
    """The manifest itself is wrong; trying again cannot help."""
    NAME_TAKEN = "NameTaken"
    """An object of that name exists and does not belong to this job."""
    FORBIDDEN = "Forbidden"
    """A quota, an admission webhook, an admission policy or a missing permission; trying again may help."""
    UNAVAILABLE = "Unavailable"
    """The API server fails, or a webhook that it has to ask; trying again may help."""
    ALTERED = "Altered"
    """An admission webhook or policy has made another object of it, which the job cannot use."""
    BEING_DELETED = "BeingDeleted"
    """The job's own object of that name is being deleted: it can be created again once it is gone."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """An action of an earlier plan that the API server refused, remembered until an action of that name succeeds."""

    kind: RejectionKind
    object: ObjectName
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """One job and all that belongs to it.

    `pods` are those whose controller is this very job (by uid), of all attempts. `vanished` are pods of it that no
    longer exist, as they were last seen: their trainers had ended, or Kubernetes was removing them. `foreign` maps
    objects that carry our label but another owner's uid to a description of that owner: names that must be waited for.
    `known` are objects that no watch shows (ConfigMap, claim, Secret), which this process has created or found for the
    current attempt, and when it last did. `ranks` are the newest answers of the ranks that were asked, `unanswered`
    the ranks whose last poll brought none, `waits` the newest answers of nodes that wait for another. `port_rivals` are
    jobs of its namespace on the host network whose pods have ports that it wants, with their ports. `last_status_write`
    is when this process last wrote the job's status, `taken_over` when it began to decide about the job; both are None
    where it has not. `inherited` is whether another process decided about the job before, and may have written a newer
    status than the one that is known. `status_refused` is what the API server refused of the last status. `seed` is a
    text that only this process knows; it makes names from it that nobody else can know before the objects exist.
    `found_claim` is the uid of the claim for checkpoints where this attempt found one instead of creating it.
    """

    job: JobRecord
    now: datetime
    pods: tuple[PodRecord, ...] = ()
    vanished: tuple[PodRecord, ...] = ()
    service: ServiceRecord | None = None
    network_policy: NetworkPolicyRecord | None = None
    foreign: Mapping[ObjectName, str] = field(default_factory=dict)
    rejections: tuple[Rejection, ...] = ()
    progress: ProgressReport | None = None
    ranks: tuple[RankReport, ...] = ()
    unanswered: frozenset[PollTarget] = frozenset()
    waits: tuple[RendezvousWait, ...] = ()
    known: Mapping[ObjectName, datetime] = field(default_factory=dict)
    port_rivals: Mapping[str, Mapping[str, range]] = field(default_factory=dict)
    last_status_write: datetime | None = None
    status_refused: str = ""
    taken_over: datetime | None = None
    inherited: bool = False
    seed: str = ""
    found_claim: str | None = None
