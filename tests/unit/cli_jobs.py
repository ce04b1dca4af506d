"""Jobs as the views of the command line get them."""

from datetime import datetime, timedelta
from typing import Any

from world import START, spec_of

from ddpjob.views.job import Job
from ddpjob.views.text import Line
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.observations.observed import JobRecord

NOW = START


def condition(kind: str, status: str, reason: str, message: str, at: datetime = START) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def job(
    name: str = "digits",
    *,
    spec: dict[str, Any] | None = None,
    created: datetime | None = START,
    **status: Any,
) -> Job:
    record = JobRecord(
        "team",
        name,
        f"uid-of-{name}",
        "1",
        1,
        deleting=False,
        spec=spec_of(**(spec or {})),
        status=DDPJobStatus.model_validate({"observedGeneration": 1, **status}) if status else None,
    )
    return Job(record, created)


RUNNING: dict[str, Any] = {
    "phase": "Running",
    "podsCreated": True,
    "startTime": START,
    "procsPerNode": 2,
    "nodes": {"desired": 2, "ready": 2},
    "conditions": [condition("RendezvousReady", "True", "AllNodesUp", "2/2 nodes are up")],
    "progress": {"epoch": 7, "totalEpochs": 20, "step": 210, "totalSteps": 600, "percent": 35, "loss": 0.0831},
    "summary": {"nodes": "2/2", "epoch": "7/20", "step": "210/600", "loss": "0.0831", "eta": "38s", "speed": "1.2k/s"},
}

SLOWEST: dict[str, Any] = {
    "attempt": 0,
    "rank": 3,
    "ordinal": 1,
    "pod": "digits-a0-1",
    "nodeName": "node-1",
    "factor": 2.1,
    "what": "Data",
    "time": START,
}

FAILURE: dict[str, Any] = {
    "rank": 3,
    "ordinal": 1,
    "pod": "digits-a1-1",
    "nodeName": "node-1",
    "attempt": 1,
    "class": "Error",
    "exitCode": 7,
    "reason": "ExitCode",
    "message": "rank 3 exited with code 7: ValueError: bad batch",
    "traceback": 'File "train.py", line 3\n    raise ValueError\nValueError: bad batch',
    "consequences": ["rank 0: ConnectionLost: connection closed"],
}

FAILED: dict[str, Any] = {
    "phase": "Failed",
    "attempt": 1,
    "podsCreated": True,
    "startTime": START,
    "completionTime": START.replace(minute=1),
    "restarts": {"counted": 1, "lastReason": "ExitCode", "lastTime": START.replace(second=30)},
    "conditions": [
        condition(
            "Failed", "True", "MaxRestartsExceeded", "rank 3 exited with code 7 (attempt 1)", START.replace(minute=1)
        )
    ],
    "failure": FAILURE,
}

SUCCEEDED: dict[str, Any] = {
    "phase": "Succeeded",
    "startTime": START,
    "completionTime": START.replace(second=38),
    "conditions": [condition("Succeeded", "True", "AllNodesSucceeded", "2 nodes exited with 0 after 38s")],
    "summary": {"loss": "0.01"},
}
LATER = NOW + timedelta(minutes=2)
WAITING = {
    "phase": "Pending",
    "nodes": {"desired": 2},
    "conditions": [condition("RendezvousReady", "False", "ImagePullBackOff", "0/2 nodes are up; check the image")],
}


def status_of(fields: dict[str, Any]) -> DDPJobStatus:
    return DDPJobStatus.model_validate(fields)


def text_of(lines: list[Line]) -> str:
    return "\n".join(f"{line.label}: {line.text}" for line in lines)
