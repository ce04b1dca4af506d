"""The columns of `kubectl get ddpjobs`, `ddpjob status` and `ddpjob top`.

A column prints one field of the object. Where several numbers make one column, `status.summary` has that field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from ddpjob_core.api.base import ApiModel, as_line

_Cell = Annotated[str, Field(max_length=40), BeforeValidator(as_line(40))]


class Summary(ApiModel):
    """Columns of kubectl get ddpjobs as text, because a column can print only one field."""

    nodes: _Cell = ""
    """Nodes that are running or have succeeded, of the nodes desired, in the form 2/2."""
    epoch: _Cell = ""
    """Current epoch and total epochs, in the form 7/20."""
    step: _Cell = ""
    """Optimizer steps done and total steps, in the form 210/600."""
    loss: _Cell = ""
    """Training loss. NaN and infinity are shown as nan and inf."""
    eta: _Cell = ""
    """Estimated time left, in the form 38s or 2h5m."""
    speed: _Cell = ""
    """Samples per second, in the form 1.2k/s."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the field that it prints, as the keys that lead to it, and what the field means.

    A date is printed as the time since then. Wide columns are printed by `kubectl get -o wide` alone.
    """

    name: str
    type: Literal["string", "integer", "date"]
    path: tuple[str, ...]
    description: str
    wide: bool = False
    instead: str = ""
    """The name of a field next to it that is printed in its place where there is one."""

    @property
    def json_path(self) -> str:
        """For the API server, which prints the first field of several that exists."""
        *where, last = self.path
        return f".{'.'.join(self.path)}" if not self.instead else f".{'.'.join(where)}['{self.instead}','{last}']"

    def value(self, fields: Mapping[str, Any]) -> object:
        """What the API server prints of an object; None without such a field."""
        *where, last = self.path
        inner: Any = fields
        for key in where:
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        found = inner if isinstance(inner, Mapping) else {}
        shown: object = found.get(self.instead)
        return shown if shown is not None else found.get(last)


COLUMNS: Final = (
    Column(
        "State",
        "string",
        ("status", "phase"),
        "Phase of the job, and what it does not say: Succeeded,SeparateGroups or Running,Resizing.",
        instead="state",
    ),
    Column(
        "Nodes",
        "string",
        ("status", "summary", "nodes"),
        "Nodes that are running or have succeeded, of the nodes desired.",
    ),
    Column(
        "Restarts",
        "integer",
        ("status", "restarts", "counted"),
        "Restarts counted against spec.restart.maxRestarts.",
    ),
    Column("Epoch", "string", ("status", "summary", "epoch"), "Current epoch and total epochs."),
    Column("Step", "string", ("status", "summary", "step"), "Optimizer steps done and total steps."),
    Column("Loss", "string", ("status", "summary", "loss"), "Training loss."),
    Column("Eta", "string", ("status", "summary", "eta"), "Estimated time left."),
    Column("Age", "date", ("metadata", "creationTimestamp"), "Time since the job was created."),
    Column("Speed", "string", ("status", "summary", "speed"), "Samples per second.", wide=True),
    Column("Launcher", "string", ("spec", "launcher"), "What starts the worker processes.", wide=True),
    Column("Backend", "string", ("status", "backend"), "Backend of the process group.", wide=True),
    Column("Last-Step", "date", ("status", "progress", "lastStepTime"), "Time since the last step.", wide=True),
)
