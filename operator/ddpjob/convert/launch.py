"""What a launch line asks for, whatever its launcher, and the launch lines of a script."""

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
    """A launch line that cannot become a DDPJob: `line`, `field` and, in `str()`, the reason."""

    def __init__(self, line: int, field: str, message: str, remedy: str = "") -> None:
        """Args:
        line: its line number.
        field: the field of the job that has no value, or the option that is wrong.
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
        nodes: None if the line does not say.
        nodes_option: the option, if its value is not a number.
        processes_option: the option that gives the processes per node.
        processes: a number or auto; `for_gpus`: as many as a node has GPUs, `for_cpus`: as many as it has CPUs.
        total_processes: of all nodes together, if the line gives only that.
        node_rank: the node that the line is for, if it says.
        lines: the line number of each field.
    """

    line: int
    raw: str
    launcher: str
    program: Text
    is_module: bool = False
    args: tuple[Text, ...] = ()
    nodes: int | None = None
    nodes_option: str = ""
    processes: int | str | None = None
    processes_option: str = ""
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
    """The content of a script.

    Attributes:
        launches: its launch lines in their order.
        refused: launch lines that cannot become a DDPJob.
        notes: what replaces everything else.
    """

    launches: list[Launch] = field(default_factory=list)
    refused: list[RefusedError] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
