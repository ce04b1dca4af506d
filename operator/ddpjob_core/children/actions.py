"""What can be done to the objects of a job, as plain data."""

from dataclasses import dataclass
from typing import TypeAlias

from ddpjob_core.api.kubernetes import Manifest, ObjectName, object_name
from ddpjob_core.api.status import Membership
from ddpjob_core.children.shared import SharedNames


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object of the job. One that exists counts as created where it is the job's own.

    A NetworkPolicy of the job's own that says something else is put right.
    """

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod of the job. Its manifest is made when it is posted: those of all pods at once would not fit.

    `lost_nodes` are nodes that it should rather not run on, `membership` says which nodes of an elastic job train,
    `shared` are the names of what it mounts. `spare` is the number of a spare node, which has no `ordinal`; 0 for
    others.
    """

    name: str
    attempt: int
    ordinal: int
    lost_nodes: tuple[str, ...] = ()
    membership: Membership | None = None
    shared: SharedNames | None = None
    spare: int = 0


@dataclass(frozen=True, slots=True)
class AnnounceMembership:
    """Write into a pod which nodes train together, its uid being a precondition; one that is gone need not know.

    `ordinal` is that of the node which a spare's pod has become, whose labels it gets; None for other pods.
    """

    name: str
    uid: str
    membership: Membership
    ordinal: int | None = None


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


Action: TypeAlias = Create | CreatePod | AnnounceMembership | DeletePod | DeleteStray | DeleteJob


def object_of(action: Action) -> ObjectName:
    """Kind and name of an action's object; a deletion is never mistaken for a creation."""
    match action:
        case Create(manifest):
            return object_name(manifest)
        case CreatePod(name):
            return ObjectName("Pod", name)
        case AnnounceMembership(name):
            return ObjectName("membership of pod", name)
        case DeletePod(name):
            return ObjectName("deletion of pod", name)
        case DeleteStray(name):
            return ObjectName("deletion of stray pod", name)
        case DeleteJob(uid):
            return ObjectName("deletion of job", uid)
