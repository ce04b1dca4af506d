"""What the operator tells: `status` of a DDPJob. It has one writer, `ddpjob.decide`."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from ddpjob.api.base import ApiModel, Time


class Phase(StrEnum):
    """Where the job stands, in one word for people; programs read the conditions."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
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
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Condition(ApiModel):
    """One fact about the job, as metav1.Condition."""

    type: ConditionType
    """Name of the fact."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: int | None = None
    """Generation of the spec that it was decided for."""
    last_transition_time: Time
    """When status last changed."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one PascalCase word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, and what to do, for people."""


class Restarts(ApiModel):
    """Attempts that were started again after a failure."""

    counted: int = 0
    """How many of spec.restart.maxRestarts are used."""
    last_reason: Annotated[str | None, Field(max_length=1024)] = None
    """Why the last one happened."""
    last_time: Time | None = None
    """When the last one was decided."""


class Nodes(ApiModel):
    """Pods of the current attempt by state."""

    desired: int
    """How many there should be."""
    ready: int = 0
    """Whose trainer container runs."""
    succeeded: int = 0
    """Whose trainer has exited with 0."""
    failed: int = 0
    """Whose trainer failed, or that are gone."""


class Progress(ApiModel):
    """What the program last reported, read from global rank 0."""

    epoch: int | None = None
    """Current epoch, from 1."""
    total_epochs: int | None = None
    """Epochs to run."""
    step: int | None = None
    """Optimizer steps done."""
    total_steps: int | None = None
    """Optimizer steps to do."""
    percent: int | None = None
    """step of totalSteps in percent."""
    loss: float | None = None
    """Training loss; left out when it is not a finite number."""
    samples_per_second: float | None = None
    """Samples per second over all ranks."""
    eta_seconds: int | None = None
    """Seconds left at the current speed."""
    last_step_time: Time | None = None
    """When the last step ended."""
    last_checkpoint_step: int | None = None
    """Step of the newest checkpoint."""
    observed_time: Time | None = None
    """When the operator read this."""


class Summary(ApiModel):
    """The columns of kubectl get ddpjobs as text: a column can only print one field."""

    nodes: str = ""
    """Ready (running) or succeeded nodes of those desired, as 2/2."""
    epoch: str = ""
    """Epoch of epochs, as 7/20."""
    step: str = ""
    """Step of steps, as 210/600."""
    loss: str = ""
    """Loss; nan and inf are shown as such."""
    eta: str = ""
    """Time left, as 38s or 2h5m."""
    speed: str = ""
    """Samples per second, as 1.2k/s."""


class Failure(ApiModel):
    """The root cause of the last failure."""

    rank: int | None = None
    """Global rank of the process that failed first."""
    ordinal: int | None = None
    """Ordinal of its pod."""
    pod: Annotated[str | None, Field(max_length=253)] = None
    """Name of its pod; kubectl logs still shows it."""
    node_name: Annotated[str | None, Field(max_length=253)] = None
    """Node that the pod ran on."""
    attempt: int | None = None
    """Attempt in which it failed."""
    exit_code: int | None = None
    """Exit code of the worker process itself, not torchrun's 1."""
    signal: Annotated[str | None, Field(max_length=32)] = None
    """Signal that ended it, as SIGKILL."""
    reason: Annotated[str, Field(max_length=253)]
    """PascalCase word for programs: ExitCode, Signal, OOMKilled, PodMissing, Evicted, ..."""
    message: Annotated[str, Field(max_length=4096)]
    """What happened and what to do."""
    traceback: Annotated[str | None, Field(max_length=8192)] = None
    """The end of the Python traceback, where there is one."""


class DDPJobStatus(ApiModel):
    """What the operator knows of the job."""

    phase: Phase = Phase.PENDING
    """Where the job stands, in one word for people."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    """Where the job stands, for programs."""
    observed_generation: int | None = None
    """Generation of the spec that this status was decided for."""
    attempt: int = 0
    """Number of the current set of pods, from 0; each start, restart and resume is a new one."""
    pods_created: bool = False
    """Whether all pods of the attempt have been made; from then on a missing pod is a failed one."""
    restarts: Restarts = Restarts()
    """Restarts after failures."""
    nodes: Nodes | None = None
    """Pods of the current attempt by state."""
    replicas: int | None = None
    """Pods of the current attempt that exist, for the scale subresource."""
    selector: Annotated[str | None, Field(max_length=1024)] = None
    """Label selector of the job's pods, for the scale subresource."""
    procs_per_node: int | None = None
    """What spec.procsPerNode came to."""
    backend: Annotated[str | None, Field(max_length=32)] = None
    """What spec.backend came to."""
    start_time: Time | None = None
    """When the first pods were made."""
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
