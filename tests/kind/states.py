"""What killed processes do to a job: the states that follow one another, on a cluster and on one machine alike.

test_recovery.py looks at them on a cluster, where a pod is deleted in place of the second kill, and
tests/torch/test_local.py without one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from jobs import program
from steady import STEADY, resilient


@dataclass(frozen=True)
class State:
    """What a job's status tells of its life: phase, attempt, and restarts of pods and of processes."""

    phase: str
    attempt: int
    counted: int
    process: int


NAME: Final = "killed"
PROGRAM: Final = program("steady", STEADY)
JOB: Final = resilient(NAME, restart={"maxProcessRestarts": 1})
RANK: Final = 1
KILLED_BEYOND: Final = (20, 60)
"""Steps beyond which the process of a rank is killed: torchrun restarts it once, then the whole job is."""
STATES: Final = (
    State("Running", 0, 0, 0),
    State("Running", 0, 0, 1),
    State("Restarting", 1, 1, 1),
    State("Running", 1, 1, 1),
    State("Succeeded", 1, 1, 1),
)


def state_of(status: dict[str, Any]) -> State:
    restarts = status.get("restarts") or {}
    return State(
        str(status.get("phase")),
        int(status.get("attempt") or 0),
        int(restarts.get("counted") or 0),
        int(restarts.get("process") or 0),
    )


def from_running_on(states: Iterable[State]) -> tuple[State, ...]:
    """The states without repetition, from the first that trains on: how a job comes up differs from place to place."""
    found: list[State] = []
    for state in states:
        if (found or state.phase == "Running") and (not found or found[-1] != state):
            found.append(state)
    return tuple(found)
