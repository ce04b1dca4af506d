"""When objects were created, as the API server's audit log has it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.apiserver.controlplane import ControlPlane

_CREATED: Final = 201


@dataclass(frozen=True, slots=True)
class Creation:
    """An object that was created: its name, and the seconds at which the request came and was answered."""

    name: str
    received: float
    answered: float


def creations(plane: ControlPlane, plural: str, namespace: str, since: int) -> list[Creation]:
    """What was created of a kind in a namespace, in order, from an offset in the log on (`ControlPlane.audit_size`)."""
    found = [
        Creation(
            entry["objectRef"].get("name", ""),
            _seconds(entry["requestReceivedTimestamp"]),
            _seconds(entry["stageTimestamp"]),
        )
        for entry in _entries(plane, since)
        if entry["verb"] == "create"
        and entry["objectRef"].get("resource") == plural
        and entry["objectRef"].get("namespace") == namespace
        and "subresource" not in entry["objectRef"]
        and entry["responseStatus"]["code"] == _CREATED
    ]
    return sorted(found, key=lambda creation: creation.received)


def requests(plane: ControlPlane, namespaces: set[str], agent: str, since: int) -> dict[str, int]:
    """Requests by verb and resource of the clients whose name begins so, in these namespaces ("" for none)."""
    counted: dict[str, int] = {}
    for entry in _entries(plane, since):
        reference = entry["objectRef"]
        if entry.get("userAgent", "").startswith(agent) and reference.get("namespace", "") in namespaces:
            what = "/".join(each for each in (reference.get("resource"), reference.get("subresource")) if each)
            key = f"{entry['verb']} {what}"
            counted[key] = counted.get(key, 0) + 1
    return counted


def _entries(plane: ControlPlane, since: int) -> Iterator[dict[str, Any]]:
    with plane.audit_log.open("rb") as log:
        log.seek(since)
        for line in log:
            # The last line may be in the middle of being written.
            if line.endswith(b"\n"):
                entry = json.loads(line)
                if "objectRef" in entry:
                    yield entry


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
