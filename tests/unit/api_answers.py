"""What the API server answered, for checks and logs."""

from dataclasses import replace
from typing import Any

from ddpjob_core.api.errors import Forbidden, NotFound, Unavailable
from ddpjob_core.observations.observed import PodRecord

DENIED = Forbidden("you may not", "ask for the right")
GONE = NotFound("it is not there")
DOWN = Unavailable("no answer", "try again")


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


SLICE = {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}, {"addresses": ["10.0.0.2"]}]}
EMPTY_SLICE = {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]}


def pod(ordinal: int, **fields: Any) -> PodRecord:
    made = PodRecord("team", f"digits-a0-{ordinal}", f"u{ordinal}", "1", "u", "digits", 0, ordinal, "Pending")
    return replace(made, **{"scheduled": True, **fields})


def raw(step: int, uid: str = "u") -> dict[str, Any]:
    """A job at a step; also its resource version."""
    status = {"attempt": 0, "podsCreated": True, "progress": {"step": step}}
    metadata = {"namespace": "ns", "name": "digits", "uid": uid, "resourceVersion": str(step)}
    return {"metadata": metadata, "spec": {"trainer": {"image": "i", "script": "s"}}, "status": status}


def given(answer: Any) -> Any:
    """A scripted answer; an error is raised."""
    if isinstance(answer, Exception):
        raise answer
    return answer
