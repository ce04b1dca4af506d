"""The Lease by which operators of the same jobs agree on one that leads: its place, its contents, how it is read."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ddpjob_core.api.constants import LABEL_NAME, OPERATOR_NAME
from ddpjob_core.api.release import ANNOTATION_RELEASE, RELEASE
from ddpjob_core.api.scope import Scope, scope_of_lease
from ddpjob_core.engine.protocols import Json

_API_VERSION: Final = "coordination.k8s.io/v1"
_LABELS: Final = {LABEL_NAME: OPERATOR_NAME, "app.kubernetes.io/component": "leader-election"}
LEASE_SELECTOR: Final = ",".join(f"{key}={value}" for key, value in _LABELS.items())

LARGEST_EPOCH: Final = 2**31 - 1
LONGEST_DURATION: Final = 60


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as the API server has it.

    Attributes:
        namespace: where it is.
        name: follows from the scope.
        uid: its uid.
        resource_version: of this state.
        holder: who leads, "" where nobody does.
        transitions: how many terms there have been, which is the number of the present one.
        duration: seconds for which the holder leads after each change of the Lease.
        scope: whose jobs it stands for, None where that cannot be read.
        raw: the object, of which only `spec` is changed.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    holder: str
    transitions: int
    duration: float
    scope: Scope | None
    raw: Json


def lease_record(raw: Json) -> LeaseRecord | None:
    """The record of a raw object, None for one without name, namespace or uid. What is out of range is brought in."""
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name, uid, version = (metadata.get(key) for key in ("namespace", "name", "uid", "resourceVersion"))
    if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str)):
        return None
    spec = raw.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    holder = spec.get("holderIdentity")
    return LeaseRecord(
        namespace,
        name,
        uid,
        version if isinstance(version, str) else "",
        holder=holder if isinstance(holder, str) else "",
        transitions=_whole(spec.get("leaseTransitions"), 0, LARGEST_EPOCH),
        duration=_whole(spec.get("leaseDurationSeconds"), 1, LONGEST_DURATION),
        scope=scope_of_lease(name, metadata.get("annotations")),
        raw={**raw, "apiVersion": _API_VERSION, "kind": "Lease"},
    )


def _whole(value: Any, least: int, most: int) -> int:  # noqa: ANN401 anything that JSON holds
    return min(max(value, least), most) if isinstance(value, int) and not isinstance(value, bool) else least


def new_lease(namespace: str, scope: Scope) -> Json:
    """A Lease that nobody holds."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": scope.lease},
        "spec": {},
    }


def taken(raw: Json, scope: Scope, *, holder: str, transitions: int, duration: float) -> Json:
    """The Lease with a new holder."""
    moment = _now()
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": round(duration),
        "acquireTime": moment,
        "renewTime": moment,
        "leaseTransitions": transitions,
    }
    return {**_marked(raw, scope), "spec": spec}


def renewed(raw: Json, scope: Scope, *, transitions: int) -> Json:
    """The Lease with the same holder for longer."""
    return {**_marked(raw, scope), "spec": {**raw["spec"], "renewTime": _now(), "leaseTransitions": transitions}}


def released(raw: Json) -> Json:
    """The Lease without a holder; the count of its terms stays."""
    return {**raw, "spec": {**raw["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}}


def _marked(raw: Json, scope: Scope) -> Json:
    # By its labels it is watched, and others read its scope and version; a user may have edited all of them.
    metadata = raw["metadata"]
    labels = {**(metadata.get("labels") or {}), **_LABELS}
    annotations = {**(metadata.get("annotations") or {}), **scope.annotations, ANNOTATION_RELEASE: RELEASE}
    return {**raw, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def _now() -> str:
    # For people only: no process compares it with its own clock.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
