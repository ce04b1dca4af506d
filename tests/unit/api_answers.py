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
