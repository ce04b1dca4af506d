"""What `decide` wants done, as plain data."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from ddpjob_core.api.status import DDPJobStatus

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless service. An existing one of this job counts as created."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CreateLauncher:
    """Create the ConfigMap that carries the launcher. An existing one of this job counts as created."""

    manifest: Manifest
    attempt: int


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create the claim for checkpoints. An existing one of this job, or one kept for its name, counts as created."""

    manifest: Manifest
    attempt: int


@dataclass(frozen=True, slots=True)
class CreateSshKey:
    """Create the Secret of the job's ssh key, with a new key. An existing one of this name counts as created."""

    manifest: Manifest
    attempt: int


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod with fieldValidation=Strict. An existing one of this job counts as created."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, its uid being a precondition; a pod that is gone or is another counts as deleted.

    `grace_seconds` None leaves the pod's own grace period.
    """

    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteStray:
    """Delete a pod of this job that the watch does not show, such as one whose label was removed.

    Its uid is not known: the pod is read, and deleted with that uid as precondition if its controller is this job.
    """

    name: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, in the background propagation that takes what it owns along."""

    uid: str


Create: TypeAlias = CreateService | CreateLauncher | CreateClaim | CreateSshKey | CreatePod
Action: TypeAlias = Create | DeletePod | DeleteStray | DeleteJob


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the job, posted once, after the status that it tells of has been written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PollTarget:
    """Where a rank of an attempt answers /progress."""

    attempt: int
    address: str
    port: int
    rank: int = 0
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one job: write `status` first, then carry out `actions`, then post `events`.

    `status` None means that nothing has to be written now. `urgent` tells a state transition, which is never held back
    by the limit on progress writes. `requeue_after` asks for another look although nothing may change until then.
    `poll` are the ranks whose progress is read: none, rank 0, or all of them where the training seems to stand still.
    """

    status: DDPJobStatus | None = None
    urgent: bool = False
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    poll: tuple[PollTarget, ...] = ()
