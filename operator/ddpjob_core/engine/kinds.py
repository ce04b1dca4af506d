"""What differs between the kinds of objects that a job owns, when one is created or found to exist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ddpjob_core.api.constants import GROUP, LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.network_policy import KIND as NETWORK_POLICY
from ddpjob_core.api.network_policy import SAYS
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, NETWORK_POLICIES, PODS, SECRETS, SERVICES, Resource
from ddpjob_core.api.text import one_line
from ddpjob_core.engine.protocols import Json
from ddpjob_core.observations.observe import controller_uid
from ddpjob_core.observations.observed import JobRecord

_LONGEST_CHANGE: Final = 200


def _is_controlled(raw: Json, job: JobRecord, _: Manifest) -> bool:
    return controller_uid(raw) == job.uid


def _is_own_claim(raw: Json, job: JobRecord, manifest: Manifest) -> bool:
    if controller_uid(raw) is not None or "ownerReferences" in manifest["metadata"]:
        return controller_uid(raw) == job.uid
    # A retained claim has no owner: it was created for a job of this name and serves the next one too.
    labels = raw.get("metadata", {}).get("labels") or {}
    return labels.get(LABEL_MANAGED_BY) == MANAGED_BY and labels.get(LABEL_JOB) == job.name


class Lookup(Enum):
    """How an object that exists is read: with no right that its kind does not need anyway."""

    LIST = "by its name in a list, for kinds that are listed to be watched"
    GET = "by its name, for kinds that are never listed"
    NONE = "never: nobody else knows such a name before the object exists"


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of one kind are treated.

    Attributes:
        resource: where they are created.
        strict: whether the API server refuses unknown and duplicate fields.
        lookup: how one that exists is read.
        is_own: whether an existing object is the job's own.
        vital: fields that the object must have as they were requested; of the labels, the operator's own.
        watched: whether a watch shows the objects, so that they are cached.
        repaired: whether one of the job's own that is not as it was requested is put right.
    """

    resource: Resource
    strict: bool = False
    lookup: Lookup = Lookup.GET
    is_own: Callable[[Json, JobRecord, Manifest], bool] = _is_controlled
    vital: tuple[str, ...] = ()
    watched: bool = False
    repaired: bool = False


_NAMED: Final = ("metadata.name", "metadata.labels")

KINDS: Final[Mapping[str, Kind]] = {
    "Pod": Kind(
        PODS,
        strict=True,
        lookup=Lookup.LIST,
        vital=(*_NAMED, "spec.restartPolicy", "spec.hostname", "spec.subdomain"),
        watched=True,
    ),
    "Service": Kind(SERVICES, lookup=Lookup.LIST, watched=True),
    NETWORK_POLICY: Kind(
        NETWORK_POLICIES,
        lookup=Lookup.LIST,
        vital=("metadata.labels", *(f"spec.{field}" for field in SAYS)),
        watched=True,
        repaired=True,
    ),
    # Reading these two is a right that the operator does not ask for: nobody else can work out the names.
    "ConfigMap": Kind(CONFIG_MAPS, lookup=Lookup.NONE, vital=("metadata.name", "data", "binaryData")),
    "PersistentVolumeClaim": Kind(CLAIMS, is_own=_is_own_claim),
    "Secret": Kind(SECRETS, lookup=Lookup.NONE),
}


def alteration(kind: Kind, job: JobRecord, manifest: Manifest, raw: Json) -> str:
    """What is vital and not as it was requested, "" for nothing: an admission webhook or policy may change anything.

    Containers may be added: a pod is done when its trainer is.

    Args:
        kind: of the object.
        job: whose it is.
        manifest: what was requested.
        raw: what the API server has made of it.
    """
    if not kind.is_own(raw, job, manifest):
        return "metadata.ownerReferences"
    for path in kind.vital:
        wanted, found = _at(manifest, path), _at(raw, path)
        if path == "metadata.labels" and isinstance(wanted, dict):
            labels = found if isinstance(found, dict) else {}
            ours = [name for name in wanted if name == LABEL_MANAGED_BY or name.startswith(f"{GROUP}/")]
            changed = next((name for name in ours if labels.get(name) != wanted[name]), None)
            if changed is not None:
                return f"{path}[{changed}]"
        elif wanted is not None and found != wanted:
            return (
                path
                if isinstance(wanted, dict | list)
                else one_line(f"{path} from {wanted} to {found}", _LONGEST_CHANGE)
            )
    return "spec.containers" if manifest["kind"] == "Pod" and not _names(manifest) <= _names(raw) else ""


def _at(raw: Json, path: str) -> object:
    value: object = raw
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _names(pod: Json) -> set[str]:
    """Names of its containers."""
    containers = _at(pod, "spec.containers")
    return (
        {str(each.get("name")) for each in containers if isinstance(each, dict)}
        if isinstance(containers, list)
        else set()
    )
