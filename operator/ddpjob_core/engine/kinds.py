"""What differs between the kinds of objects that a job owns, when one is created or found to exist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ddpjob_core.api.constants import LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, PODS, SECRETS, SERVICES, Resource
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.observe import controller_uid
from ddpjob_core.observations.observed import JobRecord


def _is_controlled(raw: Json, job: JobRecord, _: Manifest) -> bool:
    return controller_uid(raw) == job.uid


def _is_own_claim(raw: Json, job: JobRecord, manifest: Manifest) -> bool:
    if controller_uid(raw) is not None or "ownerReferences" in manifest["metadata"]:
        return controller_uid(raw) == job.uid
    # A retained claim has no owner: it was created for a job of this name and serves the next one too.
    labels = raw.get("metadata", {}).get("labels") or {}
    return labels.get(LABEL_MANAGED_BY) == MANAGED_BY and labels.get(LABEL_JOB) == job.name


def _unwatchable(raw: Json) -> str:
    if (raw["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGED_BY:
        return ""
    # In the cache it would never change again: the watch does not show it.
    return f"it belongs to this job, but its label {LABEL_MANAGED_BY} was changed: delete the pod"


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of one kind are treated.

    Attributes:
        resource: where they are created.
        strict: whether the API server refuses unknown and duplicate fields.
        readable: whether one that exists can be read. Where it cannot, its name, which holds the job's uid, is enough.
        is_own: whether an existing object is the job's own.
        objection: what is wrong with the job's own object, "" where nothing is.
        watched: whether a watch shows the objects, so that they are cached.
    """

    resource: Resource
    strict: bool = False
    readable: bool = True
    is_own: Callable[[Json, JobRecord, Manifest], bool] = _is_controlled
    objection: Callable[[Json], str] = lambda _: ""
    watched: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "Pod": Kind(PODS, strict=True, objection=_unwatchable, watched=True),
    "Service": Kind(SERVICES, watched=True),
    "ConfigMap": Kind(CONFIG_MAPS),
    "PersistentVolumeClaim": Kind(CLAIMS, is_own=_is_own_claim),
    # Reading Secrets is a right that the operator does not ask for.
    "Secret": Kind(SECRETS, readable=False),
}
