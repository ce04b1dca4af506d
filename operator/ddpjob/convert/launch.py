"""What a launch line asks for, whatever its launcher is, and what a script holds of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ddpjob.convert.notes import Note
from ddpjob.convert.variables import Text

TORCHRUN: Final = "torchrun"
LAUNCH: Final = "torch.distributed.launch"
PYTHON: Final = "python"
MPIRUN: Final = "mpirun"

AUTO: Final = "auto"


class RefusedError(Exception):
    """A launch line that no DDPJob can stand for: `line`, `field` and, in `str()`, the reason."""

    def __init__(self, line: int, field: str, message: str, remedy: str = "") -> None:
        """Args:
        line: where it stands.
        field: the field of the job that cannot be told, or the option that is wrong.
        message: what is wrong.
        remedy: what to do.
        """
        super().__init__(message)
        self.line = line
        self.field = field
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch line.

    Attributes:
        line: number of its first line.
        raw: as it is written.
        launcher: value of spec.launcher.
        program: the script or module.
        is_module: which of them.
        args: of the program.
        nodes: None where the line does not tell.
        nodes_said: what it says where that is no number.
        processes_said: how the processes of a node are written.
        processes: a number or auto; `for_gpus`: as many as a node has GPUs, `for_cpus`: as many as it has CPUs.
        total_processes: of all nodes together, where the line tells only that.
        node_rank: of which node it is the line, where it tells.
        lines: where each field was told.
    """

    line: int
    raw: str
    launcher: str
    program: Text
    is_module: bool = False
    args: tuple[Text, ...] = ()
    nodes: int | None = None
    nodes_said: str = ""
    processes: int | str | None = None
    processes_said: str = ""
    for_gpus: bool = False
    for_cpus: bool = False
    total_processes: int | None = None
    node_rank: str = ""
    rendezvous_backend: str = ""
    port: int | None = None
    timeout_seconds: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    max_process_restarts: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class Reading:
    """What a script holds.

    Attributes:
        launches: its launch lines in their order.
        refused: launch lines that no DDPJob can stand for.
        notes: what becomes of everything else.
    """

    launches: list[Launch] = field(default_factory=list)
    refused: list[RefusedError] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
