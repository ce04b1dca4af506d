"""Types of what a status says: numbers and texts with bounds."""

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from ddpjob_core.api.base import as_line, as_lines
from ddpjob_core.api.constants import MAX_NODES, MAX_PROCESSES

_INT32: Final = 2**31 - 1
_EXACT: Final = 2**53
"""The largest whole number up to which every JSON reader is exact."""
MAX_STACK: Final = 2048
MOST_TIMES: Final = 1000
"""How many times as long as the others a rank may take, at most."""


def _bounded(least: float, most: float) -> Callable[[object], object]:
    def bring_in(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return min(max(value, least), most)

    return bring_in


# A number or text that is too large is brought into bounds: nothing that a program or a kubelet reports may prevent a
# status from being written.
Count = Annotated[int, Field(ge=0, le=_INT32), BeforeValidator(_bounded(0, _INT32))]
BigCount = Annotated[int, Field(ge=0, le=_EXACT), BeforeValidator(_bounded(0, _EXACT))]
MemberCount = Annotated[int, Field(ge=1, le=MAX_NODES), BeforeValidator(_bounded(1, MAX_NODES))]
Processes = Annotated[int, Field(ge=0, le=MAX_PROCESSES), BeforeValidator(_bounded(0, MAX_PROCESSES))]
ExitCode = Annotated[int, Field(ge=-_INT32, le=_INT32), BeforeValidator(_bounded(-_INT32, _INT32))]
# The API server compares integers with these bounds as an int64, which they have to fit into.
Measure = Annotated[float, Field(ge=-1e18, le=1e18), BeforeValidator(_bounded(-1e18, 1e18))]
Factor = Annotated[float, Field(ge=1, le=MOST_TIMES), BeforeValidator(_bounded(1, MOST_TIMES))]
Rate = Annotated[float, Field(ge=0, le=1e15), BeforeValidator(_bounded(0, 1e15))]
Word = Annotated[str, Field(max_length=253), BeforeValidator(as_line(253))]
Text = Annotated[str, Field(max_length=8192), BeforeValidator(as_line(8192))]
StackText = Annotated[str, Field(max_length=MAX_STACK), BeforeValidator(as_lines(MAX_STACK))]
Lines = Annotated[str, Field(max_length=8192), BeforeValidator(as_lines(8192))]
