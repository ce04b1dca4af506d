"""`status` of a DDPJob: what the operator reports. It has one writer, `ddpjob_core.decide`."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from ddpjob_core.api.base import ApiModel, Time
from ddpjob_core.api.columns import Summary
from ddpjob_core.api.constants import MAX_MEMBERS
from ddpjob_core.api.counts import (
    BigCount,
    Count,
    ExitCode,
    Factor,
    Lines,
    Measure,
    MemberCount,
    Processes,
    Rate,
    StackText,
    Text,
    Word,
)
from ddpjob_core.api.spares import Spares

MAX_STACKS: Final = 4
STATUS_VERSION: Final = 1
"""Raised when a status can no longer be read as before although its fields are the same."""


class SlowPart(StrEnum):
    """What a rank does when the others wait for it."""

    DATA = "Data"
    COMPUTING = "Computing"
    CHECKPOINT = "Checkpoint"


class Phase(StrEnum):
    """Phase of the job, in one human-readable word; programs read the conditions."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STALLED = "Stalled"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """Types of the conditions that programs wait for: `kubectl wait --for=condition=Succeeded ddpjob/NAME`."""

    SUSPENDED = "Suspended"
    PODS_SCHEDULED = "PodsScheduled"
    RENDEZVOUS_READY = "RendezvousReady"
    TRAINING = "Training"
    TRAINING_STALLED = "TrainingStalled"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STATUS_REFUSED = "StatusRefused"
    UNREADABLE = "Unreadable"
    SEPARATE_GROUPS = "SeparateGroups"
    RESIZING = "Resizing"
    SPARE_NODES_READY = "SpareNodesReady"


class Condition(ApiModel):
    """One aspect of the state of the job, in the form of metav1.Condition."""

    type: ConditionType
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition: True, False or Unknown."""
    observed_generation: BigCount | None = None
    """Generation of the spec that the condition was set for."""
    last_transition_time: Time
    """Time at which the status of the condition last changed."""
    reason: Word
    """Reason for the current status, in one PascalCase word for programs."""
    message: Text
    """Human-readable explanation and remedy."""


class Restarts(ApiModel):
    """Restarts after failures."""

    counted: Count = 0
    """Number of restarts counted against spec.restart.maxRestarts."""
    ignored: Count = 0
    """Number of restarts that are not counted: after a preemption or an eviction, or by a rule."""
    process: Count = 0
    """Number of restarts of the worker processes inside running pods, across all attempts."""
    in_a_row: Count = 0
    """Number of restarts in a row without a newer step or checkpoint, which determines the backoff."""
    without_progress: Count = 0
    """Number of counted restarts in a row without a newer step or checkpoint. See spec.restart.noProgressLimit."""
    unlimited_in_a_row: Count = 0
    """Number of restarts in a row that no budget limits (not counted, or counted only for spec.restart.windowSeconds), each after an attempt of less than 5 minutes without a newer step or checkpoint, or of less than 30 seconds. It determines the least backoff."""
    furthest_step: BigCount | None = None
    """Highest step that any attempt has reported."""
    last_furthest_step: BigCount | None = None
    """Step beyond which the current attempt has made progress: the last one of the attempt that failed last, or the one from which an attempt continues that was left for another reason."""
    last_checkpoint_step: BigCount | None = None
    """Step of the newest checkpoint when an attempt last made progress. A newer one is progress as well."""
    recent_times: Annotated[list[Time] | None, Field(max_length=1000)] = None
    """Times of the last counted restarts, if spec.restart.windowSeconds is set."""
    last_reason: Word | None = None
    """Reason for the last restart."""
    last_time: Time | None = None
    """Time at which the last restart was decided."""


class Nodes(ApiModel):
    """Number of pods of the current attempt by state."""

    desired: Count
    """Number of pods that the attempt should have."""
    ready: Count = 0
    """Number of pods whose trainer container is running."""
    succeeded: Count = 0
    """Number of pods whose trainer container has exited with 0."""
    failed: Count = 0
    """Number of pods whose trainer container failed or that are gone. It is 0 while the job is suspended, because its pods were asked to stop."""
    succeeded_ordinals: Annotated[str | None, Field(max_length=65536, pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$")] = None
    """Ordinals of the succeeded pods, in the form 0-2,5. A succeeded pod that is removed later does not count as failed."""


class Member(ApiModel):
    """Node of an elastic job that was lost and has another pod."""

    ordinal: Count
    """Ordinal of the node."""
    generation: Count
    """Generation of the membership that has brought the pod; it ends the pod's name, unless that is a spare's."""
    spare: Count | None = None
    """Number of the spare node that has become this node; unset if its pod was created for it."""


class Rejoining(ApiModel):
    """Loss of nodes that come back in other pods while the rest keep their processes."""

    time: Time
    """Time at which the first of them was lost."""
    after: Count
    """Generation of the membership before that. Pods of later ones are in the place of lost ones, and are not replaced in turn."""
    created: bool = False
    """Whether all pods that take the places have been created. From then on, a missing one counts as failed."""


class Membership(ApiModel):
    """Which nodes of an elastic job train together: those with the ordinals below `nodes`."""

    attempt: Count
    """Attempt that the nodes belong to."""
    generation: Count = 0
    """Number of the membership in the attempt, counted from 0: each change of size is a new one, and so is each loss of nodes that come back in other pods."""
    nodes: MemberCount
    """Number of nodes that train together."""
    time: Time | None = None
    """Time at which this was decided."""
    formed: Count | None = None
    """Generation in which all of these nodes started their processes together; the current one if unset."""
    members: Annotated[list[Member] | None, Field(max_length=MAX_MEMBERS)] = None
    """Nodes whose pod is not the first one of the attempt."""
    rejoining: Rejoining | None = None
    """The loss of nodes, until the ranks make steps together again."""
    spares: Spares | None = None
    """Spare nodes."""

    @property
    def formed_in(self) -> int:
        """Generation in which all of these nodes started their processes together."""
        return self.generation if self.formed is None else self.formed

    def member(self, ordinal: int) -> int:
        """The generation that has brought the pod of a node; 0 for the first one."""
        return next((each.generation for each in self.members or () if each.ordinal == ordinal), 0)


class Progress(ApiModel):
    """Progress that the program last reported, read from global rank 0."""

    attempt: Count | None = None
    """Attempt that reported this progress."""
    process_restarts: Count | None = None
    """Number of restarts of the worker processes in that attempt."""
    epoch: BigCount | None = None
    """Current epoch, counted from 1."""
    total_epochs: BigCount | None = None
    """Number of epochs to run."""
    step: BigCount | None = None
    """Number of optimizer steps done."""
    total_steps: BigCount | None = None
    """Number of optimizer steps to run."""
    percent: Count | None = None
    """step as a percentage of totalSteps."""
    loss: Measure | None = None
    """Training loss. Unset if it is not a finite number."""
    samples_per_second: Rate | None = None
    """Number of samples per second across all ranks."""
    eta_seconds: BigCount | None = None
    """Estimated number of seconds left at the current speed."""
    last_step_time: Time | None = None
    """Time at which the last step ended."""
    last_checkpoint_step: BigCount | None = None
    """Step of the newest checkpoint."""
    rejoins: Count | None = None
    """Generation of the membership in which the ranks make steps, if they can go on without one of the nodes."""
    observed_time: Time | None = None
    """Time at which the operator read this progress."""


class Failure(ApiModel):
    """Root cause of the last failure."""

    rank: Count | None = None
    """Global rank of the process that failed first."""
    ordinal: Count | None = None
    """Ordinal of the pod that it ran in."""
    pod: Word | None = None
    """Name of the pod that it ran in. A pod that had ended by itself is kept, so that kubectl logs still works."""
    node_name: Word | None = None
    """Name of the Kubernetes node that the pod ran on."""
    attempt: Count | None = None
    """Attempt in which the process failed."""
    failure_class: Annotated[Word | None, Field(alias="class")] = None
    """Class of the failure: OutOfMemory, Disruption, PodLost, Signal, Error, NotFinite, Stalled, Deadline, Waiting, CollectiveTimeout, ConnectionLost or Stopped."""
    exit_code: ExitCode | None = None
    """Exit code of the worker process itself, not the 1 that torchrun exits with."""
    signal: Word | None = None
    """Signal that ended the process, such as SIGKILL."""
    reason: Word
    """Reason for the failure, in one PascalCase word for programs: ExitCode, Signal, OOMKilled, PodMissing, Evicted, ..."""
    message: Text
    """Human-readable explanation and remedy."""
    traceback: Lines | None = None
    """End of the Python traceback, if there is one."""
    consequences: Annotated[list[Word] | None, Field(max_length=16)] = None
    """Other failures that followed from this one, each in the form who: what."""


class Stack(ApiModel):
    """Where a rank was when the training had stalled."""

    attempt: Count
    """Attempt that the rank belonged to."""
    rank: Count
    """Global rank of the process."""
    ordinal: Count
    """Ordinal of the pod that it ran in."""
    step: BigCount | None = None
    """Last step that it had completed."""
    text: StackText
    """Innermost calls of the thread that trains, in the form of a Python traceback."""


class Slowest(ApiModel):
    """The rank that slows down the others: in its own part of the steps it has been persistently slower than they are."""

    attempt: Count
    """Attempt that the rank belongs to."""
    rank: Count
    """Global rank of the process."""
    ordinal: Count
    """Ordinal of the pod that it runs in."""
    pod: Word
    """Name of the pod that it runs in."""
    node_name: Word | None = None
    """Name of the Kubernetes node that the pod runs on."""
    factor: Factor
    """How many times as long as the median of the others it takes for its own part of a step, without waiting for others."""
    what: SlowPart
    """What takes it longer than the others: Data (waiting for its data loader), Computing, or Checkpoint (writing)."""
    time: Time
    """Time at which the rank was first seen to be the slowest."""


class Replaced(ApiModel):
    """The rank because of which the job has left a Kubernetes node."""

    attempt: Count
    """Attempt that was left."""
    rank: Count
    """Global rank of the process."""
    node_name: Word
    """Name of the Kubernetes node that later attempts avoid if there is room elsewhere."""
    factor: Factor
    """How many times as long as the others it took for its own part of a step."""
    what: SlowPart
    """What took it longer than the others: Data or Computing."""
    time: Time
    """Time at which this was decided."""


class DDPJobStatus(ApiModel):
    """Observed state of a DDPJob."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    # Every operator writes the attempt: a status without it has been erased by a person.
                    "rule": "!has(oldSelf.leaderEpoch) || !has(self.attempt) "
                    "|| has(self.leaderEpoch) && self.leaderEpoch >= oldSelf.leaderEpoch",
                    "message": "leaderEpoch must not fall: an operator that no longer leads, or one of another version "
                    "that runs alongside the leader, has written this status",
                },
            ],
        },
    }

    version: Count = STATUS_VERSION
    """Version of the form of this status. An operator that knows only older ones leaves the job alone."""
    phase: Phase = Phase.PENDING
    """Phase of the job, in one human-readable word: Pending, Starting, Running, Restarting, Stalled, Suspending, Suspended, Succeeded or Failed."""
    state: Word | None = None
    """What the column STATE shows in place of the phase, where that alone would mislead: Succeeded,SeparateGroups or Running,Resizing."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = []
    """Conditions of the job, for use by programs."""
    observed_generation: BigCount | None = None
    """Generation of the spec that this status was computed for."""
    attempt: Count = 0
    """Number of the current set of pods, counted from 0. Each start, restart and resume is a new attempt."""
    pods_created: bool = False
    """Whether all pods of the attempt have been created. From then on, a missing pod counts as failed."""
    restarts: Restarts = Restarts()
    """Restarts after failures."""
    nodes: Nodes | None = None
    """Number of pods of the current attempt by state."""
    membership: Membership | None = None
    """Which nodes train together, if spec.elastic is set."""
    replicas: Count | None = None
    """Number of pods of the current attempt that have not ended and are not being deleted, for the scale subresource."""
    selector: Word | None = None
    """Label selector of the pods of the current attempt, for the scale subresource."""
    procs_per_node: Processes | None = None
    """Number of worker processes per node that spec.procsPerNode resolved to."""
    backend: Word | None = None
    """Backend that spec.backend resolved to."""
    pod_security: Word | None = None
    """Restricted if the pods of this job get the defaults with which they pass the Pod Security Standard of that name; nothing if its first pods were created by an operator without them."""
    start_time: Time | None = None
    """Time at which the first pods were created."""
    attempt_start_time: Time | None = None
    """Time from which spec.startupDeadline counts: that at which all pods of the current attempt had been created, or the first ones if others are refused. An attempt that follows one whose nodes gave up waiting for pods keeps the time of that one."""
    first_step_time: Time | None = None
    """Time at which the first training step was observed."""
    completion_time: Time | None = None
    """Time at which the job succeeded or failed permanently."""
    progress: Progress | None = None
    """Progress that the program last reported."""
    summary: Summary = Summary()
    """Columns of kubectl get ddpjobs."""
    failure: Failure | None = None
    """Root cause of the last failure."""
    stacks: Annotated[list[Stack] | None, Field(max_length=MAX_STACKS)] = None
    """Where ranks were in the last stall, those that the others waited for first. It outlives the pods, whose logs show the stacks of all ranks."""
    slowest: Slowest | None = None
    """The rank that slows down the others, while there is one. Only programs that train with ddpjob_trainer report it."""
    replaced: Replaced | None = None
    """The rank that spec.slowRank has moved to another node, which happens once."""
    leader_epoch: Count | None = None
    """Term of the operator that wrote this status: leaseTransitions of its Lease. It never falls, so that a former leader cannot overwrite what its successor wrote."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None if it has never been set."""
        found = [condition for condition in self.conditions if condition.type == kind]
        return found[0] if found else None

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition of this type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed permanently."""
        return self.holds(ConditionType.SUCCEEDED) or self.holds(ConditionType.FAILED)
