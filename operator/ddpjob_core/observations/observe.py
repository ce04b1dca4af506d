"""From raw objects to records: total, so that no object, however malformed, can stop the operator."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from ddpjob_core.api.base import parse_time
from ddpjob_core.api.constants import (
    ANNOTATION_MEMBERSHIP,
    ANNOTATION_SPEC_HASH,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_ORDINAL,
    LAUNCHER_VOLUME,
    SSH_KEY_VOLUME,
    TRAINER_CONTAINER,
)
from ddpjob_core.api.network_policy import content_of
from ddpjob_core.api.restart import DISRUPTION_TARGET
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.api.text import one_line
from ddpjob_core.api.unknown import unknown_in_status
from ddpjob_core.observations.observed import (
    ContainerState,
    InitFailure,
    JobRecord,
    NetworkPolicyRecord,
    PodRecord,
    Running,
    ServiceRecord,
    Terminated,
    Waiting,
)
from ddpjob_core.observations.obstacle import UNSCHEDULABLE, USUAL_REASONS
from ddpjob_core.observations.read_spec import read_spec
from ddpjob_core.wire.report import parse_report

Json: TypeAlias = dict[str, Any]

_CONTAINERS: Final = ("containers", "initContainers")
_CONTAINERS_KEPT: Final = 16
"""Of each kind, from the first on and from the last on."""
_MISSING_CLAIM: Final = 'persistentvolumeclaim "'
"""How the scheduler names a claim that does not exist or is being deleted."""

# Without them it is unknown which pods are current: they are never guessed from a default.
_VITAL_STATUS: Final = ("attempt", "podsCreated")
_LONGEST_GRACE: Final = 31_536_000
_LONGEST_MESSAGE: Final = 2048
_LONGEST_WORD: Final = 253


@dataclass(frozen=True, slots=True)
class _Identity:
    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str | None
    labels: Json
    deletion_time: datetime | None
    raw: Json


def pod_record(raw: object) -> PodRecord | None:
    """The record of a raw pod, or None if it has no name, namespace or uid."""
    identity = _identity(raw)
    if identity is None or not isinstance(raw, dict):
        return None
    spec, status = _map(raw.get("spec")), _map(raw.get("status"))
    conditions = {_text(item.get("type")): item for item in _maps(status.get("conditions"))}
    states = {_text(item.get("name")): _state(item) for item in _maps(status.get("containerStatuses"))}
    init_states = {_text(item.get("name")): _state(item) for item in _maps(status.get("initContainerStatuses"))}
    trainer = states.pop(TRAINER_CONTAINER, None)
    disruption = conditions.get(DISRUPTION_TARGET, {})
    node_name = _text(spec.get("nodeName")) or None
    unmounted_since = _unmounted_since(status, conditions, scheduled=node_name is not None)
    return PodRecord(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        resource_version=identity.resource_version,
        owner_uid=identity.owner_uid,
        job=_interned(identity.labels.get(LABEL_JOB)),
        attempt=_number_label(identity.labels.get(LABEL_ATTEMPT)),
        ordinal=_number_label(identity.labels.get(LABEL_ORDINAL)),
        phase=intern(_text(status.get("phase"))),
        reason=_word(status.get("reason")),
        message=_line(status.get("message")),
        created=parse_time(identity.raw.get("creationTimestamp")),
        deletion_time=identity.deletion_time,
        deletion_grace=min(max(_int32(identity.raw.get("deletionGracePeriodSeconds"), default=0), 0), _LONGEST_GRACE),
        scheduled=node_name is not None or conditions.get("PodScheduled", {}).get("status") == "True",
        ready=conditions.get("Ready", {}).get("status") == "True",
        node_name=node_name and intern(node_name),
        pod_ip=_text(status.get("podIP")) or None,
        trainer=trainer,
        obstacle=_obstacle(conditions.get("PodScheduled", {}), init_states, states.values()),
        init_failure=_init_failure(init_states),
        others_running=any(isinstance(state, Running) for state in (*states.values(), *init_states.values())),
        disruption=(_word(disruption.get("reason")) or DISRUPTION_TARGET)
        if disruption.get("status") == "True"
        else None,
        node_lost=_is_node_lost(conditions),
        unadmitted_since=_unadmitted_since(status, conditions) if node_name is not None else None,
        unmounted_since=unmounted_since,
        spec_hash=_interned(_map(identity.raw.get("annotations")).get(ANNOTATION_SPEC_HASH)),
        membership=_interned(_map(identity.raw.get("annotations")).get(ANNOTATION_MEMBERSHIP)),
        containers=_shared_names(
            tuple(
                _word(each.get("name")) for key in _CONTAINERS for each in _first_and_last(list(_maps(spec.get(key))))
            )
        ),
        launcher=_mounted(spec, LAUNCHER_VOLUME, "configMap", "name") if unmounted_since is not None else None,
        ssh_key=_interned(_mounted(spec, SSH_KEY_VOLUME, "secret", "secretName")),
    )


def service_record(raw: object) -> ServiceRecord | None:
    """The record of a raw service, or None if it has no name, namespace or uid."""
    identity = _identity(raw)
    if identity is None:
        return None
    return ServiceRecord(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        resource_version=identity.resource_version,
        owner_uid=identity.owner_uid,
        job=_interned(identity.labels.get(LABEL_JOB)),
        deletion_time=identity.deletion_time,
    )


def network_policy_record(raw: object) -> NetworkPolicyRecord | None:
    """The record of a raw NetworkPolicy, or None if it has no name, namespace or uid."""
    identity = _identity(raw)
    if identity is None:
        return None
    return NetworkPolicyRecord(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        resource_version=identity.resource_version,
        owner_uid=identity.owner_uid,
        job=_interned(identity.labels.get(LABEL_JOB)),
        content=content_of(raw.get("spec") if isinstance(raw, dict) else None),
        deletion_time=identity.deletion_time,
    )


def job_record(raw: object, earlier: JobRecord | None = None) -> JobRecord | None:
    """The record of a raw DDPJob, or None if it has no name, namespace or uid.

    A spec that cannot be understood becomes `spec_error`. What can be read of a malformed status is kept; if attempt or
    podsCreated cannot be, it counts as erased.

    Args:
        raw: the object.
        earlier: another record of this job, which shows what has changed since.
    """
    identity = _identity(raw)
    if identity is None or not isinstance(raw, dict):
        return None
    generation = identity.raw.get("generation")
    generation = generation if isinstance(generation, int) and not isinstance(generation, bool) else 0
    read = read_spec(raw.get("spec"), identity.raw, generation, earlier)
    raw_status = raw.get("status")
    unreadable = read.error or read.unknown or unknown_in_status(raw_status)
    return JobRecord(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        resource_version=identity.resource_version,
        generation=generation,
        deleting=identity.raw.get("deletionTimestamp") is not None,
        spec=read.spec,
        spec_error=read.error,
        status=_status(raw_status),
        too_large=read.too_large,
        unknown_in_spec=read.unknown,
        writer=read.writer,
        change=read.change,
        unreadable=unreadable,
        raw_status=raw_status if unreadable is not None and isinstance(raw_status, dict) else None,
        size=read.size,
    )


def controller_uid(raw: object) -> str | None:
    """Uid of the object's controller, None if it has none."""
    metadata = _map(raw.get("metadata")) if isinstance(raw, dict) else {}
    for reference in _maps(metadata.get("ownerReferences")):
        if reference.get("controller") is True:
            uid = _text(reference.get("uid"))
            # The API server takes any text; no object has such a uid.
            return uid if 0 < len(uid) <= _LONGEST_WORD else None
    return None


def _identity(raw: object) -> _Identity | None:
    metadata = _map(raw.get("metadata")) if isinstance(raw, dict) else {}
    namespace, name, uid = (_text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    if not (namespace and name and uid):
        return None
    owner = controller_uid(raw)
    deleted = metadata.get("deletionTimestamp")
    return _Identity(
        namespace=intern(namespace),
        name=name,
        uid=uid,
        resource_version=_text(metadata.get("resourceVersion")),
        # Interned, like other values that all pods of a job share: thousands of copies would add up.
        owner_uid=owner and intern(owner),
        labels=_map(metadata.get("labels")),
        deletion_time=None if deleted is None else parse_time(deleted) or datetime.fromtimestamp(0, UTC),
        raw=metadata,
    )


@lru_cache(maxsize=256)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    # All pods of a job have the same: thousands of copies would add up.
    return names


def _state(container: Json) -> ContainerState:
    state = _map(container.get("state"))
    ended = state.get("terminated")
    if isinstance(ended, dict):
        return terminated(
            _int32(ended.get("exitCode"), default=-1),
            _text(ended.get("message")),
            signal=_int32(ended.get("signal"), default=0) or None,
            reason=_word(ended.get("reason")),
            finished_at=parse_time(ended.get("finishedAt")),
        )
    if isinstance(state.get("running"), dict):
        return Running(parse_time(state["running"].get("startedAt")))
    if isinstance(state.get("waiting"), dict):
        return Waiting(_word(state["waiting"].get("reason")), _line(state["waiting"].get("message")))
    return None


def terminated(
    exit_code: int, message: str, *, signal: int | None = None, reason: str = "", finished_at: datetime | None = None
) -> Terminated:
    """A container that has ended, its termination message read.

    Args:
        exit_code: of the container.
        message: its termination message: the launcher's report, or any text.
        signal: that ended it.
        reason: the kubelet's.
        finished_at: when it ended.
    """
    report = parse_report(message)
    text = _line(message) if report is None else ""
    return Terminated(exit_code, signal, reason, text, finished_at, report=report)


def _obstacle(
    scheduling: Json, init_states: Mapping[str, ContainerState], others: Iterable[ContainerState]
) -> Waiting | None:
    if scheduling.get("status") == "False":
        return Waiting(_word(scheduling.get("reason")) or UNSCHEDULABLE, _line(scheduling.get("message")))
    failed = _init_failure(init_states)
    if failed is not None:
        ended, detail = failed.ended, f": {failed.ended.message}" if failed.ended.message else ""
        text = f"init container {failed.container} exited with code {ended.exit_code}{detail}"
        return Waiting(ended.reason or "Error", text)
    for state in (*init_states.values(), *others):
        if isinstance(state, Waiting) and state.reason not in USUAL_REASONS:
            return state
    return None


def _init_failure(init_states: Mapping[str, ContainerState]) -> InitFailure | None:
    for name, state in init_states.items():
        if isinstance(state, Terminated) and state.exit_code != 0:
            return InitFailure(_word(name), state)
    return None


def _is_node_lost(conditions: Mapping[str, Json]) -> bool:
    # The node lifecycle controller sets Ready of a pod to False when its node stops answering, and changes nothing
    # else of the status. A kubelet never does so for a pod whose containers are ready, except for a readiness gate.
    ready = conditions.get("Ready", {})
    return (
        ready.get("status") == "False"
        and conditions.get("ContainersReady", {}).get("status") == "True"
        and ready.get("reason") != "ReadinessGatesNotReady"
    )


def _unadmitted_since(status: Mapping[str, Json], conditions: Mapping[str, Json]) -> datetime | None:
    # The first thing that a kubelet writes about a pod is when it saw it.
    if _text(status.get("phase")) != "Pending" or status.get("startTime") is not None:
        return None
    return parse_time(conditions.get("PodScheduled", {}).get("lastTransitionTime"))


def _unmounted_since(status: Mapping[str, Json], conditions: Mapping[str, Json], *, scheduled: bool) -> datetime | None:
    # A kubelet creates the sandbox of a pod once all volumes are mounted, and pulls images after that: a long pull is
    # none of this. Which volume is missing it says only in an Event.
    if _text(status.get("phase")) != "Pending":
        return None
    found = conditions.get("PodReadyToStartContainers" if scheduled else "PodScheduled", {})
    waits = found.get("status") == "False" and (scheduled or _MISSING_CLAIM in _text(found.get("message")))
    return (parse_time(found.get("lastTransitionTime")) or datetime.fromtimestamp(0, UTC)) if waits else None


def _mounted(spec: Json, volume: str, source: str, field: str) -> str | None:
    """What a volume of ours is made from."""
    sources = [each.get(source) for each in _maps(spec.get("volumes")) if each.get("name") == volume]
    return _word(_map(sources[0]).get(field)) or None if sources else None


def _status(raw: object) -> DDPJobStatus | None:
    if not isinstance(raw, dict) or any(raw.get(key) is None for key in _VITAL_STATUS):
        return None
    kept = dict(raw)
    # Each round removes at least one part; conditions are removed one by one before all of them are.
    for _ in range(len(kept) + 1):
        try:
            return DDPJobStatus.model_validate(kept)
        except ValidationError as error:
            broken = [
                item["loc"] for item in error.errors(include_url=False, include_context=False, include_input=False)
            ]
        except (RecursionError, ValueError, OverflowError):
            return None
        kept = _without(kept, broken)
        if any(key not in kept for key in _VITAL_STATUS):
            return None
    return None


def _without(status: Json, broken: Iterable[tuple[int | str, ...]]) -> Json:
    kept = dict(status)
    bad_conditions: set[int] = set()
    for place in broken:
        if place[:1] == ("conditions",) and len(place) > 1 and isinstance(place[1], int):
            bad_conditions.add(place[1])
        else:
            kept.pop(str(place[0]) if place else "", None)
    if bad_conditions and isinstance(kept.get("conditions"), list):
        kept["conditions"] = [item for index, item in enumerate(kept["conditions"]) if index not in bad_conditions]
    return kept


def _map(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> Iterator[Json]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _line(value: object) -> str:
    """What the kubelet or the scheduler says, or a program in its termination message."""
    return one_line(_text(value), _LONGEST_MESSAGE)


def _word(value: object) -> str:
    return one_line(_text(value), _LONGEST_WORD)


def _interned(value: object) -> str | None:
    # An annotation may have 256 KiB; nothing longer than a word can be one that is compared with it.
    return intern(value) if isinstance(value, str) and 0 < len(value) <= _LONGEST_WORD else None


def _first_and_last(items: list[Json]) -> list[Json]:
    # A webhook adds its containers before or after the others. A pod may have thousands.
    return items if len(items) <= 2 * _CONTAINERS_KEPT else items[:_CONTAINERS_KEPT] + items[-_CONTAINERS_KEPT:]


def _int32(value: object, *, default: int) -> int:
    valid = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return value if isinstance(value, int) and valid else default


def _number_label(value: object) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else None
