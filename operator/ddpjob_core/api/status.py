"""What the operator tells: `status` of a DDPJob. It has one writer, `ddpjob_core.decide`."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from ddpjob_core.api.base import ApiModel, Time

_INT32: Final = 2**31 - 1
_EXACT: Final = 2**53
"""The largest number up to which every reader of JSON tells two whole numbers apart."""


def _bounded(least: float, most: float) -> Callable[[object], object]:
    def bring_in(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return min(max(value, least), most)

    return bring_in


def _cut(limit: int) -> Callable[[object], object]:
    return lambda value: value[: limit - 1] + "…" if isinstance(value, str) and len(value) > limit else value


# A number or text that is too large is brought into its bounds: what a program or a kubelet says must never keep a
# status from being written.
Count = Annotated[int, Field(ge=0, le=_INT32), BeforeValidator(_bounded(0, _INT32))]
BigCount = Annotated[int, Field(ge=0, le=_EXACT), BeforeValidator(_bounded(0, _EXACT))]
ExitCode = Annotated[int, Field(ge=-_INT32, le=_INT32), BeforeValidator(_bounded(-_INT32, _INT32))]
Measure = Annotated[float, Field(ge=-1e300, le=1e300), BeforeValidator(_bounded(-1e300, 1e300))]
Rate = Annotated[float, Field(ge=0, le=1e15), BeforeValidator(_bounded(0, 1e15))]
ColumnText = Annotated[str, Field(max_length=40), BeforeValidator(_cut(40))]
Word = Annotated[str, Field(max_length=253), BeforeValidator(_cut(253))]
Text = Annotated[str, Field(max_length=8192), BeforeValidator(_cut(8192))]


class Phase(StrEnum):
    """Where the job stands, in one word for people; programs read the conditions."""

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
    """The facts that programs wait for: `kubectl wait --for=condition=Succeeded ddpjob/NAME`."""

    SUSPENDED = "Suspended"
    PODS_SCHEDULED = "PodsScheduled"
    RENDEZVOUS_READY = "RendezvousReady"
    TRAINING = "Training"
    TRAINING_STALLED = "TrainingStalled"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Condition(ApiModel):
    """One fact about the job, as metav1.Condition."""

    type: ConditionType
    """Name of the fact."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: BigCount | None = None
    """Generation of the spec that it was decided for."""
    last_transition_time: Time
    """When status last changed."""
    reason: Word
    """Why, in one PascalCase word for programs."""
    message: Text
    """Why, and what to do, for people."""


class Restarts(ApiModel):
    """Attempts that were started again after a failure."""

    counted: Count = 0
    """Restarts that count against spec.restart.maxRestarts."""
    ignored: Count = 0
    """Restarts that do not: after a preemption, an eviction, or by a rule."""
    process: Count = 0
    """Restarts of the worker processes inside running pods, in all attempts together."""
    in_a_row: Count = 0
    """Restarts in a row without a newer step: how often the backoff was doubled."""
    without_progress: Count = 0
    """Counted restarts in a row without a newer step, see spec.restart.noProgressLimit."""
    furthest_step: BigCount | None = None
    """The highest step that any attempt has reported."""
    last_furthest_step: BigCount | None = None
    """What furthestStep was at the last restart."""
    recent_times: Annotated[list[Time] | None, Field(max_length=1000)] = None
    """When the last counted ones happened, where spec.restart.windowSeconds is given."""
    last_reason: Word | None = None
    """Why the last one happened."""
    last_time: Time | None = None
    """When the last one was decided."""


class Nodes(ApiModel):
    """Pods of the current attempt by state."""

    desired: Count
    """How many there should be."""
    ready: Count = 0
    """Whose trainer container runs."""
    succeeded: Count = 0
    """Whose trainer has exited with 0."""
    failed: Count = 0
    """Whose trainer failed, or that are gone; none of a job that is suspended, which was asked to stop."""
    succeeded_ordinals: Annotated[str | None, Field(max_length=65536, pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$")] = None
    """The succeeded ones, as 0-2,5. A pod of theirs that is removed later has not failed."""


class Progress(ApiModel):
    """What the program last reported, read from global rank 0."""

    attempt: Count | None = None
    """Attempt that reported it."""
    process_restarts: Count | None = None
    """Restarts of the worker processes in that attempt."""
    epoch: BigCount | None = None
    """Current epoch, from 1."""
    total_epochs: BigCount | None = None
    """Epochs to run."""
    step: BigCount | None = None
    """Optimizer steps done."""
    total_steps: BigCount | None = None
    """Optimizer steps to do."""
    percent: Count | None = None
    """step of totalSteps in percent."""
    loss: Measure | None = None
    """Training loss; left out when it is not a finite number."""
    samples_per_second: Rate | None = None
    """Samples per second over all ranks."""
    eta_seconds: BigCount | None = None
    """Seconds left at the current speed."""
    last_step_time: Time | None = None
    """When the last step ended."""
    last_checkpoint_step: BigCount | None = None
    """Step of the newest checkpoint."""
    observed_time: Time | None = None
    """When the operator read this."""


class Summary(ApiModel):
    """The columns of kubectl get ddpjobs as text: a column can only print one field."""

    nodes: ColumnText = ""
    """Ready (running) or succeeded nodes of those desired, as 2/2."""
    epoch: ColumnText = ""
    """Epoch of epochs, as 7/20."""
    step: ColumnText = ""
    """Step of steps, as 210/600."""
    loss: ColumnText = ""
    """Loss; nan and inf are shown as such."""
    eta: ColumnText = ""
    """Time left, as 38s or 2h5m."""
    speed: ColumnText = ""
    """Samples per second, as 1.2k/s."""


class Failure(ApiModel):
    """The root cause of the last failure."""

    rank: Count | None = None
    """Global rank of the process that failed first."""
    ordinal: Count | None = None
    """Ordinal of its pod."""
    pod: Word | None = None
    """Name of its pod; kubectl logs still shows it."""
    node_name: Word | None = None
    """Node that the pod ran on."""
    attempt: Count | None = None
    """Attempt in which it failed."""
    failure_class: Annotated[Word | None, Field(alias="class")] = None
    """Kind of failure: OutOfMemory, Disruption, PodLost, Signal, Error, Stalled, Deadline, CollectiveTimeout, ConnectionLost or Stopped."""
    exit_code: ExitCode | None = None
    """Exit code of the worker process itself, not torchrun's 1."""
    signal: Word | None = None
    """Signal that ended it, as SIGKILL."""
    reason: Word
    """PascalCase word for programs: ExitCode, Signal, OOMKilled, PodMissing, Evicted, ..."""
    message: Text
    """What happened and what to do."""
    traceback: Text | None = None
    """The end of the Python traceback, where there is one."""
    consequences: Annotated[
        list[Annotated[str, Field(max_length=253), BeforeValidator(_cut(253))]] | None, Field(max_length=16)
    ] = None
    """What else failed because of it, each as who: what."""


class DDPJobStatus(ApiModel):
    """What the operator knows of the job."""

    phase: Phase = Phase.PENDING
    """Where the job stands, in one word for people."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = []
    """Where the job stands, for programs."""
    observed_generation: BigCount | None = None
    """Generation of the spec that this status was decided for."""
    attempt: Count = 0
    """Number of the current set of pods, from 0; each start, restart and resume is a new one."""
    pods_created: bool = False
    """Whether all pods of the attempt have been made; from then on a missing pod is a failed one."""
    restarts: Restarts = Restarts()
    """Restarts after failures."""
    nodes: Nodes | None = None
    """Pods of the current attempt by state."""
    replicas: Count | None = None
    """Pods of the current attempt that exist, for the scale subresource."""
    selector: Word | None = None
    """Label selector of the job's pods, for the scale subresource."""
    procs_per_node: Count | None = None
    """What spec.procsPerNode came to."""
    backend: Word | None = None
    """What spec.backend came to."""
    start_time: Time | None = None
    """When the first pods were made."""
    attempt_start_time: Time | None = None
    """When the pods of the current attempt had all been made."""
    first_step_time: Time | None = None
    """When the first training step was seen."""
    completion_time: Time | None = None
    """When the job succeeded or failed for good."""
    progress: Progress | None = None
    """What the program last reported."""
    summary: Summary = Summary()
    """The columns of kubectl get ddpjobs."""
    failure: Failure | None = None
    """The root cause of the last failure."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None where it was never set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition of this type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded or failed for good."""
        return self.holds(ConditionType.SUCCEEDED) or self.holds(ConditionType.FAILED)
