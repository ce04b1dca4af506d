"""What can be done to the objects of a job, as plain data."""

from dataclasses import dataclass
from typing import TypeAlias

from ddpjob_core.api.kubernetes import Manifest


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
